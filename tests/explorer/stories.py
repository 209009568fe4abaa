"""The faults of which every point is explored, and how each of them must end, wherever the monitor was hit."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from fleet import UID, Fleet
from monitors import Receiver

from rankpulse.core import records as r
from rankpulse.core.settings import Settings, parse
from rankpulse.core.targets import WebhookTarget

TWO: Final = {"node-a": 2, "node-b": 2}
SAVES_S: Final = 9.0  # more than `grace_s` and `answer_s` of these stories
KEY: Final = Path(tempfile.mkdtemp(prefix="rankpulse-explorer-")) / "key"


def settings(preset: str = "drill", **policy: float) -> Settings:
    """With one target that is told of everything."""
    KEY.write_text("k" * 32)
    KEY.chmod(0o600)
    base = parse({"preset": preset, "cluster": "story", "policy": {"grace_s": 1.0, "answer_s": 4.0, **policy}})
    every = ("page", "restart", "closed")
    hook = WebhookTarget(name="hook", url="http://127.0.0.1:1/", secret_file=str(KEY), events=every)
    return msgspec.structs.replace(
        base,
        webhook=msgspec.structs.replace(base.webhook, targets=(hook,)),
        detect=msgspec.structs.replace(base.detect, heartbeat_interval_s=0.5),
        monitor=msgspec.structs.replace(base.monitor, tick_interval_s=0.25, lease_ttl_s=5.0),
    )


@dataclass(frozen=True)
class Story:
    """`fault`: what is done to the fleet; `goes_on`: looks at it twice a second afterwards, for what people do.

    `incidents`: class, action, outcome of each; `restarts`: rounds that were ordered to end; `told`: effects outside.
    """

    name: str
    fault: Callable[[Fleet, Receiver], None]
    incidents: tuple[tuple[str, str, str], ...]
    restarts: tuple[int, ...] = ()
    told: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()  # classes of incidents that may be there, too
    kills: int = 0
    goes_on: Callable[[Fleet, Receiver], None] = lambda _fleet, _receiver: None
    holds: Callable[[Fleet], bool] = lambda _fleet: True
    settings: Settings = field(default_factory=settings)
    nodes: dict[str, int] = field(default_factory=lambda: TWO)
    spares: dict[str, int] = field(default_factory=dict)
    trains_s: float = 20.0
    limit_s: float = 240.0


def crash(fleet: Fleet, _receiver: Receiver) -> None:
    fleet.ends(fleet.procs[3], signal=9, held=True)


def crash_with_last_words(fleet: Fleet, _receiver: Receiver) -> None:
    """Its survivors write for longer than any other order may take."""
    fleet.observe(r.CHECKPOINT, "node-a", fleet.procs[0], event="last_words", times=1, within_s=SAVES_S)
    fleet.heap.after(2.0, lambda: fleet.ends(fleet.procs[3], signal=9, held=True))


def saved_once(fleet: Fleet) -> bool:
    """It was asked for, awaited, and told of once."""
    [order], [incident] = fleet.ordered("restart"), fleet.incidents()
    told = [line.text for line in incident.trail if line.text.startswith("last words: step")]
    saved = (incident.last_words, incident.last_words_step) == ("saved", incident.resumed_from_step)
    return (order.last_words_s, order.absent, len(told)) == (SAVES_S, (3,), 1) and saved


def hang(fleet: Fleet, _receiver: Receiver) -> None:
    fleet.procs[1].state, fleet.training, fleet.behind = "T", False, 1


def node_loss(fleet: Fleet, _receiver: Receiver) -> None:
    fleet.die("node-b")


def left_out(fleet: Fleet) -> bool:
    """The only order leaves out the node that is lost, and the next round met without it."""
    places = [place.node for m in meetings(fleet) if m.round == 2 for place in m.places]
    return fleet.ordered("restart")[0].without == ("node-b",) and places == ["node-a", "node-c"]


def deaf_crash(fleet: Fleet, receiver: Receiver) -> None:
    fleet.deaf.update(TWO)
    crash(fleet, receiver)


def given_up(fleet: Fleet, receiver: Receiver) -> None:
    """A person who was paged ends the job."""
    if "page" in receiver.events() and any(p.alive for p in fleet.procs):
        for proc in [p for p in fleet.procs if p.alive]:
            fleet.ends(proc, code=1, error="KeyboardInterrupt")
        for node in TWO:
            fleet.leaves(node, "failed", "was asked to end by SIGINT")


def bad_program(fleet: Fleet, _receiver: Receiver) -> None:
    fleet.steps_per_beat = 0
    fleet.ends(fleet.procs[3], code=1, error="ValueError", message="no such token", held=True)


def bad_again(fleet: Fleet, _receiver: Receiver) -> None:
    """The second round fails as the first, once that is over."""
    last = [p for p in fleet.procs if p.alive and p.row.round == 2]
    if len(last) == 4 and is_over(fleet, 1):
        fleet.ends(last[3], code=1, error="ValueError", message="no such token", held=True)


def is_over(fleet: Fleet, round_: int) -> bool:
    """Whether the incident of this round is closed."""
    return any(i.round == round_ and i.state == "closed" for i in fleet.incidents())


def half_silent(fleet: Fleet, _receiver: Receiver) -> None:
    fleet.die("node-a", "node-b")


def opened_once(fleet: Fleet) -> bool:
    return len({value for _, value in fleet.written(fleet.keys.breaker())}) == 1


def crash_again(fleet: Fleet, _receiver: Receiver) -> None:
    """Another worker of the same node, once the job went on."""
    mine = [p for p in fleet.procs if p.alive and p.row.round == 2]
    if len(mine) == 4 and is_over(fleet, 1) and fleet.heap.now > fleet.met_at + 15.0:
        fleet.ends(next(p for p in mine if p.node == "node-b"), signal=9, held=True)


def cordoned_once(fleet: Fleet) -> bool:
    places = [place.node for m in meetings(fleet) if m.round == 3 for place in m.places]
    return len(fleet.written(fleet.keys.cordon("node-b"))) == 1 and places == ["node-a", "node-c"]


def unarmed_hang(fleet: Fleet, receiver: Receiver) -> None:
    fleet.put(fleet.keys.arm(), r.Arm(armed=False, author="ann", reason="test", at=0.0))
    back_at = fleet.heap.now + 40.0
    receiver.status = lambda now: 200 if now >= back_at else 500
    hang(fleet, receiver)


def passes(fleet: Fleet, receiver: Receiver) -> None:
    """Once somebody has heard of it."""
    if receiver.effects:
        fleet.procs[1].state, fleet.training = "S", True


def spent(fleet: Fleet, _receiver: Receiver) -> None:
    """Torchelastic's restarts are used up: a worker fails, and the run is closed."""
    fleet.ends(fleet.procs[3], code=1, error="OSError", message="disk full")
    for proc in fleet.procs[:3]:
        fleet.ends(proc, signal=15)
    fleet.leaves("node-b", "failed", "rank 3 ended with exit code 1")
    fleet.leaves("node-a", "gone", "the run is closed")


def scheduler(fleet: Fleet, receiver: Receiver) -> None:
    """Starts the job again for every restart that it is told of and has not had yet."""
    wanted = receiver.events().count("restart")
    while fleet.heirs < wanted:
        fleet.heirs += 1
        uid = f"job-{1 + fleet.heirs}"
        fleet.asks(TWO, 1, uid)
        fleet.meets(TWO, 1, uid=uid, asks=False)


def one_heir(fleet: Fleet) -> bool:
    return fleet.heirs == 1


def meetings(fleet: Fleet) -> list[r.Meeting]:
    from rankpulse.core import codec

    prefix = fleet.keys.meeting(UID, 1).rsplit("/", 1)[0]
    return [codec.decode(r.Meeting, value) for _, value in fleet.written(prefix)]


SPARE: Final = {"node-c": 2}
FOUR: Final = {f"node-{letter}": 2 for letter in "abcd"}
STORIES: Final = (
    Story("crash", crash, (("worker_dead", "restart", "recovered"),), restarts=(1,)),
    Story(
        "last words", crash_with_last_words, (("worker_dead", "restart", "recovered"),), restarts=(1,), holds=saved_once
    ),
    Story("hang", hang, (("collective_hang", "restart", "recovered"),), restarts=(1,)),
    Story(
        "node loss", node_loss, (("node_dead", "restart_without", "recovered"),), restarts=(1,), holds=left_out,
        settings=settings("fast"), spares=SPARE, trains_s=40.0,
    ),
    Story(
        "ladder", deaf_crash, (("worker_dead", "restart", "run_ended"),), restarts=(1,), kills=1,
        told=("closed", "page", "restart"), goes_on=given_up, settings=settings(round_s=15.0, webhook_s=10.0),
    ),
    Story(
        "stop", bad_program, (("worker_dead", "restart", "recovered"), ("worker_dead", "stop", "run_ended")),
        restarts=(1,), told=("closed", "page"), goes_on=bad_again,
    ),
    Story(
        "breaker", half_silent, (("breaker_open", "page", ""),), told=("page",), holds=opened_once,
        besides=("control_plane_delay", "node_dead"), settings=settings("fast"), nodes=FOUR, trains_s=40.0,
    ),
    Story(
        "strikes", crash, (("worker_dead", "restart", "recovered"),) * 2, restarts=(1, 2), goes_on=crash_again,
        holds=cordoned_once, spares=SPARE, settings=settings(strikes=2),
    ),
    Story(
        "outbox", unarmed_hang, (("collective_hang", "observe", "passed"),), told=("closed", "page"), goes_on=passes
    ),
    Story(
        "heir", spent, (("worker_dead", "page", "run_ended"),), told=("closed", "page", "restart"), goes_on=scheduler,
        holds=one_heir,
    ),
)  # fmt: skip
