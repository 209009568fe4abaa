"""What joins the machines: ports that fail, pairs that do not reach each other, collectives that all have entered."""

from typing import Final

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.laggards import LINK, Laggards
from rankpulse.core.remembered import before_on
from rankpulse.core.scene import Said, Scene
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.verdict import Cause, Culprits, step

NO_LAGGARD: Final = "no laggard"  # what a stall is called where nobody is behind
BROKEN: Final = ("down", "polling", "flapping", "error", "disabled")


def of_ports(scene: Scene) -> Cause | None:
    """The port that failed first. What its failure flushed on other connections is no cause."""
    retries = scene.of(signs.IB_RETRY)
    downs = [s for s in scene.of(signs.LINK_DOWN) if s.node]
    ports = {(n.node, link.name) for n in scene.snap.nodes for link in n.links if _broken(link.state, link.flaps)}
    if scene.moves is True or not (retries or downs or ports):
        return None
    lead = retries[0] if retries else None
    node = lead.node if lead else _first_node(downs, ports)
    peer = _peer(scene, lead) if lead else ""
    links = tuple(
        sorted(f"{n}/{port}" for n, port in ports if n in (node, peer)) or _named(lead or next(iter(downs), None))
    )
    both = tuple(dict.fromkeys(n for n in (node, peer) if n))
    blamed = tuple(n for n in both if any(n == broken for broken, _ in ports) or any(s.node == n for s in downs))
    targets = blamed or both
    again = before_on(scene, targets, v.NETWORK_STALL, v.PARTITION)
    return Cause(
        klass=v.NETWORK_STALL,
        culprits=Culprits(
            (lead.rank,) if lead and lead.rank is not None else (), targets if again else both, (), links
        ),
        confidence=0.9 if lead and ports else 0.8,
        summary=f"network: {', '.join(links) or ' and '.join(both)} failed first",
        reasons=_reasons(scene, lead, ports, downs, again),
        evidence=tuple(s.ref for s in (*retries[:1], *downs[:3]))
        or tuple(f"nodes[{n}].links" for n, _ in sorted(ports)),
        action=policy.RESTART_WITHOUT if again else policy.RESTART,
        steps=(step(v.RESTART_EXCLUDING, *targets) if again else v.RESTART_JOB, step(v.PROBE_FABRIC, *both)),
        hints=("check cable, transceiver and switch port at both ends", "if it comes again, leave the node out"),
        fault="link",
    )


def _broken(state: str, flaps: int) -> bool:
    return any(word in state.lower() for word in BROKEN) or flaps > 0


def _first_node(downs: list[Said], ports: set[tuple[str, str]]) -> str:
    return downs[0].node if downs else min(ports)[0]


def _peer(scene: Scene, lead: Said) -> str:
    """The node at the other end, where the line or the port names one that is known."""
    named = [node for node in scene.node_names if node != lead.node and node in lead.text]
    told = [link.peer for n in scene.snap.nodes if n.node == lead.node for link in n.links if link.peer]
    return max(named, key=len, default="") or next(iter(told), "")


def _named(said: Said | None) -> tuple[str, ...]:
    words = said.text.replace(":", " ").replace(",", " ").split() if said else []
    ports = [
        w for w in words if w.startswith(("mlx", "ib", "eth", "bond", "roce", "rdma")) and any(c.isdigit() for c in w)
    ]
    return tuple(f"{said.node}/{port}" for port in ports[:1]) if said else ()


def _reasons(
    scene: Scene, lead: Said | None, ports: set[tuple[str, str]], downs: list[Said], again: int
) -> tuple[str, ...]:
    told = [f"first of all: {lead.text}"] if lead else []
    told += [f"{node}: port {port} is or was down" for node, port in sorted(ports)[:4]]
    told += [f"{s.node}: {s.text}" for s in downs[:2]]
    flushed = scene.of(signs.IB_FLUSHED)
    if flushed:
        told.append(f"{len(flushed)} later lines of flushed requests follow from it: who prints them is not to blame")
    if again:
        told.append("it is not the first failure there")
    return tuple(told)


def of_stall(scene: Scene, found: Laggards) -> Cause | None:
    """Everybody has entered and nothing moves: no laggard. The smallest group that is stuck says where to look."""
    if found.kind != LINK:
        return None
    pair = found.ranks if len(found.ranks) == 2 else ()
    where = f" of group {found.groups[0]}" if found.groups else ""
    counters = [
        (n.node, link.name) for n in scene.snap.nodes for link in n.links if link.errors or link.moving is False
    ]
    named = tuple(f"{node}/{port}" for node, port in counters[:8])
    return Cause(
        klass=v.NETWORK_STALL,
        culprits=Culprits(pair, scene.where(pair), (), named, found.groups),
        confidence=round(0.75 * found.confidence, 2),
        summary=f"no laggard: all ranks have entered the collective{where}, and nothing moves",
        reasons=(*found.reasons, *((f"between {ranks_in_words(pair)}",) if pair else ()),
                 "no rank is behind: it is the network, NVLink or the communicator, not one rank"),
        evidence=tuple(f"nodes[{node}].links" for node, _ in counters[:4]) or ("ranks[*].positions",),
        action=policy.RESTART,
        steps=(step(v.PROBE_FABRIC, *scene.where(pair)), v.RESTART_JOB),
        hints=("collect counters of network and NVLink before the restart", "leave nobody out at the first time"),
        fault=NO_LAGGARD,
    )  # fmt: skip


def of_mismatch(scene: Scene, found: Laggards) -> Cause:
    """Ranks that call different things at the same place: the program's fault, and it will come again."""
    nodes = scene.where(found.ranks)
    return Cause(
        klass=v.COLLECTIVE_MISMATCH,
        culprits=Culprits(tuple(sorted(found.ranks)), nodes if len(found.ranks) == 1 else (), (), (), found.groups),
        confidence=round(0.95 * found.confidence, 2),
        summary=f"ranks call different collectives at the same place: {ranks_in_words(found.ranks)}",
        reasons=(
            *found.reasons,
            "this is the program's fault: no machine is to blame, and a restart alone may not help",
        ),
        evidence=tuple(f"ranks[{rank}].positions" for rank in found.ranks[:8]),
        action=policy.PAGE,
        steps=(v.TELL_USER, v.RESTART_JOB),
        hints=("look for branches that differ between ranks: uneven data, a condition on the rank, an early exit",),
        fault="mismatch",
    )
