"""A network that is cut between ranks: data that is sent again and again, and that nobody acknowledges.

The kernel of a peer acknowledges also for a process that is stopped, so retransmissions are proof of the way between
two machines, not of what a rank does. A rank that is plainly stuck wins all the same: it explains the standstill, and
what is wrong with the network does not explain the rank.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from rankpulse.core import policy
from rankpulse.core import verdict as v
from rankpulse.core.laggards import LINK, MISMATCH, NOBODY, OUT_OF_STEP, STUCK, Laggards, is_out_of_it
from rankpulse.core.remembered import before_on
from rankpulse.core.scene import Scene
from rankpulse.core.snapshot import Rank
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.verdict import Cause, Culprits, step

SURE: Final = 0.9  # both ends say so, or several ranks of the same machines
ONE_SIDED: Final = 0.75  # one rank alone says so
SCATTERED: Final = 0.6  # many machines that have nothing in common
UNSEEN: Final = 0.8  # how much it counts where nobody saw that all ranks wait
WIDE: Final = 3  # so many peers that one machine does not reach are its own fault, not theirs


@dataclass
class Way:
    """What hangs between two machines, or within one. By end: the ranks that send in vain, and whom they mean."""

    senders: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    meant: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    @property
    def is_sure(self) -> bool:
        return len(self.senders) > 1 or sum(map(len, self.senders.values())) > 1


def of_cut(scene: Scene, found: Laggards) -> Cause | None:
    """Ranks wait for each other, and between some of them nothing is acknowledged."""
    ways = _ways(scene) if scene.moves is not True else {}
    if not ways or not _explains(scene, found, ways):
        return None
    nodes, confidence, why = _blamed(scene, ways)
    ranks = _ranks(scene, ways, nodes, found)
    again = before_on(scene, nodes, v.NETWORK_STALL, v.PARTITION)
    seen = 1.0 if found.kind == LINK or ranks else UNSEEN
    return Cause(
        klass=v.NETWORK_STALL,
        culprits=Culprits(ranks, nodes, (), (), found.groups if found.kind == LINK else ()),
        confidence=round(confidence * seen, 2),
        summary=f"the network is cut: {why}",
        reasons=(*_told(scene, ways), *_of_waiting(found), "a peer that is only stopped would still acknowledge"),
        evidence=tuple(f"ranks[{rank}].unacked" for rank in sorted(_senders(ways))[:8]),
        action=policy.RESTART_WITHOUT if again else policy.RESTART,
        steps=(step(v.PROBE_FABRIC, *nodes), step(v.RESTART_EXCLUDING, *nodes) if again else v.RESTART_JOB),
        hints=("look at cable, port, routes and firewall between them", "if it comes again, leave the node out"),
        fault="cut",
    )


# --- what hangs


def _ways(scene: Scene) -> dict[frozenset[str], Way]:
    """By the machines at both ends."""
    told = [rank for rank in scene.snap.ranks if rank.unacked and rank.node]
    owners = _owners(scene) if told else {}
    ways: dict[frozenset[str], Way] = defaultdict(Way)
    for rank in told:
        for host, port in map(_split, rank.unacked):
            node = rank.node if _is_loopback(host) else owners.get(host, "")
            if node:
                way = ways[frozenset((rank.node, node))]
                way.senders[rank.node].add(rank.rank)
                way.meant[node].update(_listening(scene, node, port) - {rank.rank})
    return dict(ways)


def _owners(scene: Scene) -> dict[str, str]:
    """Whose an address is, where only one machine has it."""
    told: dict[str, set[str]] = defaultdict(set)
    for node in scene.snap.nodes:
        for address in filter(None, map(_plain, node.addresses)):
            told[address].add(node.node)
    return {address: next(iter(names)) for address, names in told.items() if len(names) == 1}


def _split(remote: str) -> tuple[str, int]:
    """`ip:port`, or `[ip]:port`."""
    host, _, port = remote.rpartition(":")
    return _plain(host), int(port) if port.isascii() and port.isdigit() and len(port) <= len("65535") else 0


def _plain(address: str) -> str:
    """One spelling of each address; what is none is nobody's."""
    try:
        found = ip_address(address.strip("[] ").partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)


def _is_loopback(address: str) -> bool:
    return bool(address) and ip_address(address).is_loopback


def _listening(scene: Scene, node: str, port: int) -> set[int]:
    """The rank of a machine that has this port, or its only rank."""
    here = scene.on([node])
    mine = {rank for rank in here if port in scene.ranks[rank].ports}
    return mine or (set(here) if len(here) == 1 else set())


# --- whether it is that


def _explains(scene: Scene, found: Laggards, ways: dict[frozenset[str], Way]) -> bool:
    """Whether a cut can be why nothing moves."""
    if found.kind == MISMATCH:
        return False
    blamed = [scene.ranks[rank] for rank in found.ranks if rank in scene.ranks]
    if found.kind in (STUCK, OUT_OF_STEP):
        ends = {node for pair in ways for node in pair}
        return all(rank.node in ends and not is_out_of_it(rank) for rank in blamed)
    return found.kind != NOBODY or any(way.is_sure for way in ways.values())


def _blamed(scene: Scene, ways: dict[frozenset[str], Way]) -> tuple[tuple[str, ...], float, str]:
    """The machines, how sure, and in words."""
    sure = any(way.is_sure for way in ways.values()) or len(ways) >= WIDE
    confidence = SURE if sure else ONE_SIDED
    everyone = tuple(sorted({node for pair in ways for node in pair}))
    if len(ways) == 1:
        where = f"between {' and '.join(everyone)}" if len(everyone) > 1 else f"within {everyone[0]}"
        return everyone, confidence, f"nothing passes {where}"
    common = frozenset.intersection(*ways)
    if len(common) == 1:
        node = next(iter(common))
        return (node,), confidence, f"{node} and {len(everyone) - 1} others do not reach each other: its port or cable"
    place = _shared(scene, ways)
    where = f"{place} is cut off" if place else f"among {len(everyone)} nodes"
    return everyone, SURE if place else SCATTERED, f"nothing passes {len(ways)} ways: {where}"


def _shared(scene: Scene, ways: dict[frozenset[str], Way]) -> str:
    """The rack or switch that is at one end of all, and not at the other."""
    for kind in ("switch", "rack"):
        ends = [frozenset(getattr(scene.place(node), kind) for node in pair) for pair in ways]
        common = frozenset.intersection(*ends) - {""}
        if len(common) == 1 and all(len(one) > 1 for one in ends):
            return f"{kind} {next(iter(common))}"
    return ""


def _ranks(scene: Scene, ways: dict[frozenset[str], Way], nodes: tuple[str, ...], found: Laggards) -> tuple[int, ...]:
    """Those at both ends of the one way; of one machine's fault those on it. Nobody where an end cannot be told."""
    if len(ways) > 1:
        return tuple(sorted(r for r in _senders(ways) if scene.ranks[r].node in nodes)) if len(nodes) == 1 else ()
    way = next(iter(ways.values()))
    ends = [way.senders.get(node) or way.meant.get(node) or set() for node in nodes]
    if len(nodes) == 1:
        return tuple(sorted(ends[0] | way.meant[nodes[0]]))
    known = [set(found.ranks) & set(scene.on([node])) for node in nodes] if len(found.ranks) == len(nodes) else []
    ends = [mine or theirs for mine, theirs in zip(ends, known or ends, strict=True)]
    return tuple(sorted(set().union(*ends))) if all(ends) else ()


def _senders(ways: dict[frozenset[str], Way]) -> set[int]:
    return {rank for way in ways.values() for ranks in way.senders.values() for rank in ranks}


def _told(scene: Scene, ways: dict[frozenset[str], Way]) -> Iterator[str]:
    for rank in sorted(_senders(ways))[:4]:
        row = scene.ranks[rank]
        yield f"rank {rank} on {row.node} sends to {_some(row)} again and again, and gets no answer"
    one_sided = [way for way in ways.values() if len(way.senders) == 1]
    if len(ways) == 1 and one_sided and len(next(iter(ways))) > 1:
        yield "only one end has anything to send: the other cannot tell"


def _some(row: Rank) -> str:
    more = f" and {len(row.unacked) - 2} more" if len(row.unacked) > 2 else ""
    return f"{', '.join(row.unacked[:2])}{more}"


def _of_waiting(found: Laggards) -> Iterable[str]:
    if found.kind == LINK:
        yield from found.reasons[:2]
    elif found.ranks:
        yield f"{ranks_in_words(found.ranks)} would seem to be late; what it waits for cannot reach it"
