"""The key schema, and who may write what: the layout *is* the permission model (etcd roles are prefixes)."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from rankpulse.core import records

ROOT = "/rankpulse/"
NODE_MAX = 100
BEATS_KEPT = 100_000
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class BadName(ValueError):
    """A name that cannot be part of a key; the text says which characters can."""


def check_name(name: str, what: str) -> str:
    """`name` if it can stand in a key: letters, digits, `.`, `_`, `-`, at most 128, the first a letter or digit."""
    if not _SAFE.fullmatch(name):
        raise BadName(f"{what} {name!r}: use letters, digits, '.', '_' and '-' (at most 128), first a letter or digit")
    return name


def check_node(name: str) -> str:
    """`name` if a node can be called so: it must stand in a key also with the number of a process after it."""
    if len(name) > NODE_MAX:
        raise BadName(f"node {name!r}: at most {NODE_MAX} characters; give its agent a shorter name with agent.node")
    return check_name(name, "node")


class Role(NamedTuple):
    """An etcd role: the prefixes it may read and the prefixes it may write."""

    read: tuple[str, ...]
    write: tuple[str, ...]


class Parsed(NamedTuple):
    """A key, understood: the record kind it holds and the names that the record must repeat."""

    kind: type[records.Record]
    names: dict[str, Any]


class Keys:
    """Keys of one cluster. Every method returns a full key or a prefix ending in `/`."""

    def __init__(self, cluster: str) -> None:
        self.cluster = check_name(cluster, "cluster")
        self.prefix = f"{ROOT}{cluster}/"
        self._beats: dict[str, Parsed] = {}  # a monitor hears the same keys again and again

    def node(self, node: str) -> str:
        return f"{self.prefix}nodes/{check_name(node, 'node')}/"

    def nodes(self) -> str:
        return f"{self.prefix}nodes/"

    def beat(self, node: str) -> str:
        return self.node(node) + "beat"

    def claim(self, node: str) -> str:
        return self.node(node) + "agent"

    def state(self, node: str) -> str:
        return self.node(node) + "state"

    def health(self, node: str) -> str:
        return self.node(node) + "health"

    def obs(self, node: str, inc: int, seq: int) -> str:
        return f"{self.node(node)}obs/{inc:08d}/{seq:010d}"

    def runs(self) -> str:
        return f"{self.prefix}runs/"

    def roster(self, run_uid: str, round_: int) -> str:
        return f"{self.runs()}{check_name(run_uid, 'run_uid')}/roster/{round_:06d}"

    def run_state(self, run_uid: str) -> str:
        return f"{self.runs()}{check_name(run_uid, 'run_uid')}/state"

    def checkpoint(self, run_uid: str) -> str:
        return f"{self.runs()}{check_name(run_uid, 'run_uid')}/checkpoint"

    def run_learned(self, run_uid: str) -> str:
        return f"{self.runs()}{check_name(run_uid, 'run_uid')}/learned"

    def fleet_learned(self) -> str:
        return f"{self.prefix}learned/fleet"

    def advices(self) -> str:
        return f"{self.prefix}advice/"

    def advice(self, run_uid: str) -> str:
        return self.advices() + check_name(run_uid, "run_uid")

    def save_now(self, run_uid: str) -> str:
        return f"{self.advice(run_uid)}/now"

    def orders(self) -> str:
        return f"{self.prefix}orders/"

    def order(self, run_uid: str, round_: int, kind: str) -> str:
        return f"{self.orders()}{check_name(run_uid, 'run_uid')}/{round_:06d}/{check_name(kind, 'kind')}"

    def incidents(self) -> str:
        return f"{self.prefix}incidents/"

    def incident(self, id_: str) -> str:
        return self.incidents() + check_name(id_, "incident")

    def finding(self, incident: str) -> str:
        return f"{self.prefix}findings/{check_name(incident, 'incident')}"

    def leader(self) -> str:
        return f"{self.prefix}leader"

    def epoch(self) -> str:
        return f"{self.prefix}epoch"

    def canary(self, monitor: str) -> str:
        return f"{self.prefix}canary/{check_name(monitor, 'monitor')}"

    def arm(self) -> str:
        return f"{self.prefix}policy/arm"

    def run_mode(self, run_uid: str) -> str:
        return f"{self.prefix}policy/runs/{check_name(run_uid, 'run_uid')}"

    def breaker(self) -> str:
        return f"{self.prefix}policy/breaker"

    def maintenance(self, node: str) -> str:
        return f"{self.prefix}maintenance/{check_name(node, 'node')}"

    def spent(self) -> str:
        return f"{self.prefix}learned/spent"

    def requests(self) -> str:
        return f"{self.prefix}requests/"

    def request(self, id_: str) -> str:
        return self.requests() + check_name(id_, "request")

    def cordons(self) -> str:
        return f"{self.prefix}cordons/"

    def cordon(self, node: str) -> str:
        return self.cordons() + check_name(node, "node")

    def outbox(self) -> str:
        return f"{self.prefix}outbox/"

    def outgoing(self, event: str, target: str) -> str:
        return f"{self.outbox()}{check_name(event, 'event')}/{check_name(target, 'target')}"

    def gates(self) -> str:
        return f"{self.prefix}gates/"

    def gate(self, run_uid: str, round_: int) -> str:
        return f"{self.gates()}{check_name(run_uid, 'run_uid')}/{round_:06d}"

    def rdzv(self) -> str:
        return f"{self.prefix}rdzv/"

    def label(self, name: str) -> str:
        return f"{self.rdzv()}labels/{check_name(name, 'label')}"

    def presence(self, node: str) -> str:
        return f"{self.rdzv()}agents/{check_name(node, 'node')}"

    def launch(self, run_uid: str) -> str:
        return f"{self.rdzv()}{_run_name(run_uid)}/launch"

    def joiner(self, run_uid: str, node: str, launcher: str) -> str:
        return f"{self.rdzv()}{_run_name(run_uid)}/nodes/{check_name(f'{node}.{launcher}', 'launcher')}"

    def meeting(self, run_uid: str, round_: int) -> str:
        return f"{self.rdzv()}{_run_name(run_uid)}/rounds/{round_:06d}"

    def ledger(self) -> str:
        return f"{self.prefix}ledger/"

    def ledger_origin(self) -> str:
        return f"{self.ledger()}origin"

    def ledger_entry(self, closed_at: float, incident: str) -> str:
        """In order of time."""
        name = f"{min(max(round(closed_at * 1000), 0), 10**13 - 1):013d}-{check_name(incident, 'incident')}"
        return f"{self.ledger()}entries/{check_name(name, 'incident')}"

    def ledger_day(self, day: str, origin: str) -> str:
        return f"{self.ledger()}days/{check_name(f'{day}.{origin}', 'day')}"

    def ledger_past(self, origin: str) -> str:
        return f"{self.ledger()}past/{check_name(origin, 'origin')}"

    def parse(self, key: str) -> Parsed | None:
        """What `key` holds, or None when it is not a record of ours (canary, epoch, unknown)."""
        known = self._beats.get(key)
        if known is not None:
            return known
        parsed = self._parsed(key)
        if parsed is not None and parsed.kind is records.Beat and len(self._beats) < BEATS_KEPT:
            self._beats[key] = parsed
        return parsed

    def _parsed(self, key: str) -> Parsed | None:
        if not key.startswith(self.prefix):
            return None
        parts = key[len(self.prefix) :].split("/")
        rule = _RULES.get((parts[0], len(parts)))
        if rule is None or any(not _SAFE.fullmatch(part) for part in parts):
            return None
        try:
            parsed = rule(parts)
        except ValueError:
            return None
        numbers = (name for name in (parsed.names.values() if parsed else ()) if isinstance(name, int))
        return None if any(number < 0 for number in numbers) else parsed

    def roles(self, node: str) -> dict[str, Role]:
        """Least privilege per role: `agent` for one node, `monitor`, `operator`, `reader`."""
        p = self.prefix
        return {
            "agent": Role(
                read=(self.node(node), self.orders(), self.gates(), self.cordons(), self.advices(), p + "rdzv/"),
                write=(self.node(node), p + "rdzv/"),
            ),
            "monitor": Role(read=(p,), write=(p,)),
            "operator": Role(read=(p,), write=(p + "policy/", self.requests())),
            "reader": Role(read=(p,), write=()),
        }


def _node_key(parts: list[str]) -> Parsed | None:
    kinds: dict[str, type[records.Record]] = {
        "beat": records.Beat,
        "agent": records.AgentClaim,
        "state": records.NodeState,
        "health": records.NodeHealth,
    }
    kind = kinds.get(parts[2])
    return Parsed(kind, {"node": parts[1]}) if kind else None


def _obs_key(parts: list[str]) -> Parsed | None:
    if parts[2] != "obs":
        return None
    return Parsed(records.Observation, {"node": parts[1], "inc": int(parts[3]), "seq": int(parts[4])})


def _roster_key(parts: list[str]) -> Parsed | None:
    return Parsed(records.Roster, {"run_uid": parts[1], "round": int(parts[3])}) if parts[2] == "roster" else None


def _of_run_key(parts: list[str]) -> Parsed | None:
    kinds: dict[str, type[records.Record]] = {
        "state": records.RunState,
        "checkpoint": records.CheckpointState,
        "learned": records.RunLearned,
    }
    kind = kinds.get(parts[2])
    return Parsed(kind, {"run_uid": parts[1]}) if kind else None


def _order_key(parts: list[str]) -> Parsed:
    return Parsed(records.Order, {"run_uid": parts[1], "round": int(parts[2]), "kind": parts[3]})


def _ledger_key(parts: list[str]) -> Parsed | None:
    what, name = parts[1], parts[2]
    if what == "entries" and name[13:14] == "-":
        return Parsed(records.LedgerEntry, {"id": name[14:]}) if name[:13].isdigit() else None
    if what == "days" and name[10:11] == ".":
        return Parsed(records.LedgerDay, {"day": name[:10], "origin": name[11:]})
    return Parsed(records.LedgerPast, {"origin": name}) if what == "past" else None


def _one_of(name: str, kinds: dict[str, type[records.Record]]) -> Parsed | None:
    kind = kinds.get(name)
    return Parsed(kind, {}) if kind else None


def _run_name(run_uid: str) -> str:
    """A run_uid that cannot be taken for one of the other names under rdzv/."""
    if run_uid in ("labels", "agents"):
        raise BadName(f"run_uid {run_uid!r}: reserved")
    return check_name(run_uid, "run_uid")


def _rdzv_key(parts: list[str]) -> Parsed | None:
    uid, what = parts[1], parts[2]
    if uid == "labels":
        return Parsed(records.Label, {}) if len(parts) == 3 else None
    if uid == "agents":
        return Parsed(records.Presence, {"node": what}) if len(parts) == 3 else None
    if len(parts) == 3:
        return Parsed(records.Launch, {"run_uid": uid}) if what == "launch" else None
    if what == "rounds":
        return Parsed(records.Meeting, {"run_uid": uid, "round": int(parts[3])})
    if what != "nodes":
        return None
    node, pid, start = parts[3].rsplit(".", 2)
    return Parsed(records.Joiner, {"run_uid": uid, "node": node, "launcher": f"{int(pid)}.{int(start)}"})


_RULES: dict[tuple[str, int], Callable[[list[str]], Parsed | None]] = {
    ("nodes", 3): _node_key,
    ("nodes", 5): _obs_key,
    ("runs", 4): _roster_key,
    ("runs", 3): _of_run_key,
    ("advice", 2): lambda parts: Parsed(records.RunAdvice, {"run_uid": parts[1]}),
    ("advice", 3): lambda parts: Parsed(records.SaveNow, {"run_uid": parts[1]}) if parts[2] == "now" else None,
    ("orders", 4): _order_key,
    ("cordons", 2): lambda parts: Parsed(records.Cordon, {"node": parts[1]}),
    ("gates", 3): lambda parts: Parsed(records.Gate, {"run_uid": parts[1], "round": int(parts[2])}),
    ("rdzv", 3): _rdzv_key,
    ("rdzv", 4): _rdzv_key,
    ("incidents", 2): lambda parts: Parsed(records.Incident, {"id": parts[1]}),
    ("findings", 2): lambda parts: Parsed(records.Finding, {"id": parts[1]}),
    ("outbox", 3): lambda parts: Parsed(records.Outgoing, {"event": parts[1], "target": parts[2]}),
    ("leader", 1): lambda parts: Parsed(records.Leader, {}),
    ("learned", 2): lambda parts: _one_of(parts[1], {"fleet": records.FleetLearned, "spent": records.Spent}),
    ("policy", 2): lambda parts: _one_of(parts[1], {"arm": records.Arm, "breaker": records.Breaker}),
    ("policy", 3): lambda parts: Parsed(records.RunMode, {"run_uid": parts[2]}) if parts[1] == "runs" else None,
    ("maintenance", 2): lambda parts: Parsed(records.Maintenance, {"node": parts[1]}),
    ("ledger", 2): lambda parts: _one_of(parts[1], {"origin": records.LedgerOrigin}),
    ("ledger", 3): _ledger_key,
    ("requests", 2): lambda parts: Parsed(records.Request, {"id": parts[1]}),
}
