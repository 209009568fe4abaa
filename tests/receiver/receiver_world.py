"""Events as monitors sign them, and schedulers that behave as the real ones were seen to."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from support import eventually

from rankpulse.core.announcing import body, body_of_test
from rankpulse.core.records import Incident
from rankpulse.core.signing import key, sign
from rankpulse.receiver.acting import Answer, Ran
from rankpulse.receiver.clock import Clock
from rankpulse.receiver.deciding import Plan
from rankpulse.receiver.desk import Desk, Reply
from rankpulse.receiver.journal import Journal
from rankpulse.receiver.settings import ReceiverSettings, parse
from rankpulse.receiver.slurm_job import COLUMNS
from rankpulse.receiver.vitals import Vitals
from rankpulse.receiver.work import Work

KEY = "0123456789abcdef0123456789abcdef"
NOW = 1.8e9
SLURM_JOB = {"run_id": "*", "actuator": "slurm", "users": ["ann"]}


def restart(number: int = 1, *, run_id: str = "77", cluster: str = "prod", at: float = NOW, **change: Any) -> bytes:
    """The body of an event `restart`, by the code of the monitor."""
    without = change.pop("without", ("gpu07",))
    incident = Incident(
        id=f"i0001-{number:04d}",
        klass="node_dead",
        state="open",
        opened_at=at,
        run_uid="r1",
        run_id=run_id,
        round=3,
        nodes=("gpu07",),
        summary="gpu07 is dead",
        told=("restart/t",),
    )
    incident = msgspec.structs.replace(incident, **change)
    return body(incident, "restart", cluster=cluster, at=at, without=without).encode()


def other(event: str, *, at: float = NOW) -> bytes:
    """The body of an event that asks for nothing."""
    if event == "test":
        return body_of_test("test-1", cluster="prod", at=at, author="ann", reason="new").encode()
    incident = Incident(id="i0001-0009", klass="unknown", state="open", opened_at=at)
    return body(incident, event, cluster="prod", at=at).encode()


def signed(body_: bytes, *, at: float = NOW, keys: Sequence[str] = (KEY,), id_: str | None = None) -> dict[str, str]:
    """Headers of a request."""
    found = json.loads(body_)["id"] if id_ is None else id_
    return {
        "webhook-id": found,
        "webhook-timestamp": str(round(at)),
        "webhook-signature": sign([key(one) for one in keys], found, round(at), body_),
    }


def settings(folder: Path, *jobs: Mapping[str, Any], **change: Any) -> ReceiverSettings:
    secret = folder / "key"
    if not secret.exists():
        secret.touch(mode=0o600)
        secret.write_text(f"{KEY}\n")
    tree: dict[str, Any] = {
        "clusters": ["prod"],
        "listen": "127.0.0.1:0",
        "metrics_listen": "127.0.0.1:0",
        "secret_file": str(secret),
        "state_file": str(folder / "journal.db"),
        "jobs": list(jobs) or [SLURM_JOB],
        "acting": {"retry_s": 0.01, "retry_max_s": 0.02, "give_up_after_s": 60.0},
    }
    return parse({**tree, **change})


class Time:
    def __init__(self) -> None:
        self.utc = NOW

    def clock(self) -> Clock:
        return Clock(now=lambda: self.utc, utc=lambda: self.utc)


class Office:
    """A desk with everything behind it but the network."""

    def __init__(self, made: ReceiverSettings, acting: Mapping[str, Any], time: Time | None = None) -> None:
        self.settings, self.time, self.vitals = made, time or Time(), Vitals()
        self.journal = Journal(made.state_file)
        self.work = Work(made, self.journal, acting, self.time.clock(), self.vitals)
        self.desk = Desk(made, self.journal, self.work, self.time.clock(), self.vitals)

    def hear(self, body_: bytes, headers: Mapping[str, str] | None = None, caller: str = "::1") -> Reply:
        given = signed(body_, at=self.time.utc) if headers is None else headers
        return self.desk.answer(given.items(), body_, caller)

    async def idle(self) -> None:
        """All that was begun has ended."""
        await eventually(lambda: not self.work.waiting, 20, "the end of all actions")

    async def close(self) -> None:
        await self.work.close()
        self.journal.close()


class Recorder:
    """An `Actuator` that writes down what it was asked for. `ends`: what it raises next."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.ends: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def restart(self, plan: Plan, scribe: Any) -> str:
        self.plans.append(plan)
        await self.gate.wait()
        if self.ends:
            raise self.ends.pop(0)
        return "restarted"

    async def would(self, plan: Plan, scribe: Any) -> list[str]:
        return [f"restart {plan.target}"]


class SlurmWorld:
    """`Programs`: squeue and scontrol over one job, as slurm 22.05 was seen to answer.

    A job that is requeued is COMPLETING for one look, then PENDING and held; its comment and excluded nodes stay.
    """

    def __init__(self, state: str = "RUNNING", user: str = "ann", before: Callable[[str], None] | None = None) -> None:
        self.state, self.user, self.restarts, self.held = state, user, 0, False
        self.name, self.comment, self.admin, self.excluded = "train", "of ann", "", ""
        self.nodes = "gpu[07-08]"
        self.requeues, self.changes = 0, list[str]()
        self.started_with: list[str] = []  # the excluded nodes of each start
        self._before = before or (lambda what: None)

    async def run(self, argv: Sequence[str], **_: Any) -> Ran:
        words = list(argv)
        if words[0] == "squeue":
            return self._rows()
        if words[:4] == ["scontrol", "-o", "show", "node"]:
            known = words[4] in ("gpu07", "gpu08")
            return Ran(0, f"NodeName={words[4]} Arch=x86_64\n") if known else Ran(1, f"Node {words[4]} not found\n")
        if words[:2] == ["scontrol", "-o"]:
            return Ran(0, self._shown())
        if words[1:3] == ["show", "hostnames"]:
            return Ran(0, "gpu07\ngpu08\n")
        self._before(words[1])
        self.changes.append(" ".join(words))
        ran = getattr(self, f"_{words[1]}")(words[2:])
        self._before(f"{words[1]} done")
        return ran if isinstance(ran, Ran) else Ran(0, "")

    def start(self) -> None:
        """The scheduler finds a place for it."""
        assert (self.state, self.held) == ("PENDING", False)
        self.state = "RUNNING"
        self.started_with.append(self.excluded)

    def _rows(self) -> Ran:
        reason = "job requeued in held state" if self.held else "None"
        facts = {
            "JobID": "77",
            "JobArrayID": "77",
            "HetJobID": "N/A",
            "UserName": self.user,
            "State": self.state,
            "RestartCnt": self.restarts,
            "Reason": reason,
            "NodeList": self.nodes,
            "Comment": self.comment,
        }
        if self.state == "COMPLETING":
            self.state = "PENDING"
        return Ran(0, "".join(f"{facts[name]}|" for name in COLUMNS) + "\n")

    def _shown(self) -> str:
        admin = f" AdminComment={self.admin} " if self.admin else ""
        return (
            f"JobId=77 JobName={self.name} UserId={self.user}(1000) JobState={self.state} Restarts={self.restarts} "
            f"ReqNodeList=(null) ExcNodeList={self.excluded or '(null)'} NodeList={self.nodes} Command=/x/job.sh"
            f"{admin} Comment={self.comment}  StdErr=/x/o StdIn=/dev/null Power= \n"
        )

    def _update(self, words: list[str]) -> Ran | None:
        assert words[0] == "JobId=77"
        if self.state not in ("PENDING", "RUNNING", "COMPLETING"):
            return Ran(1, "Job has already finished for job 77\n")
        name, _, value = words[1].partition("=")
        if name == "ExcNodeList":
            if self.state != "PENDING":
                return Ran(1, "Job is no longer pending execution for job 77\n")
            self.excluded = value
        else:
            setattr(self, {"AdminComment": "admin", "Comment": "comment"}[name], value)
        return None

    def _requeuehold(self, words: list[str]) -> Ran | None:
        assert words == ["77"]
        if self.state == "PENDING":
            return Ran(1, "Job is pending execution for job 77\n")
        self.requeues += 1
        self.restarts, self.held = self.restarts + 1, True
        self.state = "COMPLETING" if self.state == "RUNNING" else "PENDING"
        return None

    def _release(self, words: list[str]) -> None:
        assert words == ["77"]
        self.held = False


class KubeWorld:
    """`Api`: one object and its nodes, with the optimistic locking of the real one and a controller behind it."""

    def __init__(self, kind: str = "JobSet", before: Callable[[str], None] | None = None) -> None:
        self.kind, self.calls, self.bodies = kind, list[tuple[str, str]](), list[Any]()
        self.object: dict[str, Any] = {"metadata": {"name": "77", "resourceVersion": "1"}, "spec": {}, "status": {}}
        self.nodes: dict[str, dict[str, Any]] = {
            "gpu07": {
                "metadata": {"name": "gpu07", "resourceVersion": "5"},
                "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
            }
        }
        self.suspends = self.resumes = 0
        self.interfering = 0  # so many patches find that somebody else was quicker
        self._looks, self.slow = 0, 1  # after so many looks its pods have ended
        self._before = before or (lambda what: None)

    async def get(self, path: str) -> Answer:
        self.calls.append(("GET", path))
        found = self._find(path)
        if found is None:
            return Answer(404, {"message": "not found"})
        if found is self.object and self._suspended():
            self._looks += 1
            if self._looks > self.slow:
                self.object["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
        return Answer(200, json.loads(json.dumps(found)))

    async def patch(self, path: str, body: Mapping[str, Any]) -> Answer:
        self._before(f"patch {path}")
        self.calls.append(("PATCH", path))
        self.bodies.append(body)
        found = self._find(path)
        assert found is not None
        if self.interfering:
            self.interfering -= 1
            found["metadata"]["resourceVersion"] += "x"
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return Answer(409, {"message": "the object has been modified"})
        was = self._suspended()
        _merge(found, body)
        found["metadata"]["resourceVersion"] += "0"
        if found is self.object and was != self._suspended():
            self.suspends, self.resumes = self.suspends + (not was), self.resumes + was
            self.object["status"], self._looks = {}, 0
        self._before(f"patch {path} done")
        return Answer(200, found)

    def _suspended(self) -> bool:
        spec = self.object["spec"]
        return bool(spec.get("runPolicy", {}).get("suspend") if self.kind == "PyTorchJob" else spec.get("suspend"))

    def _find(self, path: str) -> dict[str, Any] | None:
        if path.startswith("/api/v1/nodes/"):
            return self.nodes.get(path.removeprefix("/api/v1/nodes/"))
        return self.object if path.endswith("/77") else None


def _merge(tree: dict[str, Any], change: Mapping[str, Any]) -> None:
    """RFC 7386."""
    for name, value in change.items():
        if value is None:
            tree.pop(name, None)
        elif isinstance(value, Mapping):
            _merge(tree.setdefault(name, {}), value)
        else:
            tree[name] = value


class SystemdWorld:
    """`Programs`: systemctl over one unit."""

    def __init__(self, active: str = "active", result: str = "success", before: Any = None) -> None:
        self.active, self.result, self.load, self.starts = active, result, "loaded", 1
        self.restarts = 0
        self._before = before or (lambda what: None)

    async def run(self, argv: Sequence[str], **_: Any) -> Ran:
        assert argv[-1] == "train@77.service"
        if argv[1] == "show":
            facts = {
                "LoadState": self.load,
                "ActiveState": self.active,
                "Result": self.result,
                "InvocationID": f"{self.starts:032x}",
            }
            return Ran(0, "".join(f"{name}={value}\n" for name, value in facts.items()))
        assert list(argv[1:3]) == ["restart", "--"]
        self._before("restart")
        self.starts, self.restarts, self.active, self.result = self.starts + 1, self.restarts + 1, "active", "success"
        self._before("restart done")
        return Ran(0, "")
