"""More stories of which every point is explored: what people ask for, and what nodes tell while the job goes on."""

from collections.abc import Callable
from typing import Any, Final

from fleet import Fleet
from monitors import UTC, Receiver
from numbers_world import all_tell, saves
from stories import FOUR, SPARE, Story, half_silent, hang, meetings, settings

from rankpulse.core import codec
from rankpulse.core import records as r

Fault = Callable[[Fleet, Receiver], None]
BUS: Final = "0000:18:00"
SAVED_EVERY: Final = 12  # looks, of half a second
PATIENT: Final = 8.0  # seconds until a person does the next thing


def asks(kind: str, **more: Any) -> Fault:
    """A person's request."""
    return lambda fleet, _receiver: fleet.ask(kind, **more)


def trains(fleet: Fleet, _receiver: Receiver) -> None:
    """Until it has left, a checkpoint every few seconds, of the step that all have finished."""
    living = [proc for proc in fleet.procs if proc.alive]
    if fleet.round == 1 and living and round(fleet.heap.now / 0.5) % SAVED_EVERY == 0:
        saves(fleet, min(proc.step for proc in living), oldest=1)


def places(fleet: Fleet, round_: int) -> list[str]:
    return [place.node for meeting in meetings(fleet) if meeting.round == round_ for place in meeting.places]


def answered(fleet: Fleet) -> bool:
    """Nobody's request lies about."""
    return not [key for key in fleet.store if "/requests/" in key]


def left_for_good(fleet: Fleet) -> bool:
    """The job is on the spare; one order said so; the cordon never said anything else."""
    [order] = fleet.ordered("restart")
    cordons = {value for _, value in fleet.written(fleet.keys.cordon("node-b"))}
    return (
        answered(fleet)
        and len(cordons) == 1
        and order.without == ("node-b",)
        and places(fleet, 2) == ["node-a", "node-c"]
    )


def in_maintenance(fleet: Fleet) -> bool:
    kept = {value for _, value in fleet.written(fleet.keys.maintenance("node-b"))}
    return answered(fleet) and len(kept) == 1 and places(fleet, 2) == ["node-a", "node-c"]


def gpu_breaks(fleet: Fleet, _receiver: Receiver) -> None:
    """A GPU falls off the bus, and the job goes on: the agent tells of it, and keeps a record."""
    now, text = UTC + fleet.heap.now, "XID 79: the GPU has fallen off the bus"
    found = r.HealthFinding("xid_79", "broken", "drain_reboot", text, now, now, 1, None, "kernel")
    said = {name: getattr(found, name) for name in ("what", "level", "action", "text", "count", "source")}
    fleet.observe(r.GPU_FAULT, "node-b", how="opened", bus=BUS, uuid=f"GPU-{BUS}", index=0, **said)
    row = r.GpuRow(BUS, f"GPU-{BUS}", "H100", 0, "ok", "ignore", (found,))
    fleet.put(fleet.keys.health("node-b"), r.NodeHealth(node="node-b", inc=1, at=now, gpus=(row,)))


def goes_bad(fleet: Fleet, _receiver: Receiver) -> None:
    """Its numbers have not been finite for three steps; there is a checkpoint from before."""
    step = min(proc.step for proc in fleet.procs)
    saves(fleet, step - 40, oldest=1)
    all_tell(fleet, step - 20)


def from_before(fleet: Fleet) -> bool:
    """The order and the round say from before which step."""
    [order] = fleet.ordered("restart")
    met = [meeting.resume_before_step for meeting in meetings(fleet) if meeting.round == 2]
    return order.resume_before_step > 0 and met == [order.resume_before_step]


def is_cancelled(fleet: Fleet, _receiver: Receiver) -> None:
    """As soon as the order is given, a scheduler ends the job."""
    launch = codec.decode(r.Launch, fleet.store[fleet.keys.launch("job-1")][0])
    if fleet.ordered("restart") and fleet.round == 1 and not launch.closed:
        fleet.cancelled("SignalException: Process 9000 got signal: 15")


def looked_at(fleet: Fleet, receiver: Receiver) -> None:
    """A person who was paged brings the nodes back, and then closes the breaker."""
    if "page" not in receiver.events():
        return
    if fleet.dead:
        fleet.dead.clear()
        fleet.training, fleet.met_at = True, fleet.heap.now
    elif fleet.heap.now - fleet.met_at == PATIENT:
        fleet.ask("breaker_close")


def opened_and_closed(fleet: Fleet) -> bool:
    """Each once, and in this order."""
    said = [codec.decode(r.Breaker, value).open for _, value in fleet.written(fleet.keys.breaker())]
    return answered(fleet) and said == sorted(said, reverse=True) and {*said} == {True, False}


STORIES: Final = (
    Story(
        "a person's restart", asks("restart", uid="job-1"), (("operator_restart", "restart", "recovered"),),
        restarts=(1,), holds=answered,
    ),
    Story(
        "drain", asks("cordon", node="node-b", drain=True), (("drain", "restart_without", "recovered"),),
        restarts=(1,), holds=left_for_good, goes_on=trains, spares=SPARE,
    ),
    Story(
        "maintenance", asks("maintenance", node="node-b"), (("drain", "restart_without", "recovered"),),
        restarts=(1,), holds=in_maintenance, goes_on=trains, spares=SPARE,
    ),
    Story(
        "GPU", gpu_breaks, (("gpu_fault", "restart_without", "recovered"),), restarts=(1,), holds=left_for_good,
        goes_on=trains, spares=SPARE,
    ),
    Story(
        "not finite", goes_bad, (("non_finite", "restart", "recovered"),), restarts=(1,), holds=from_before,
        settings=settings(restart_on_non_finite=True),
    ),
    Story(
        "cancelled", hang, (("collective_hang", "restart", "run_ended"),), restarts=(1,), told=("page",),
        goes_on=is_cancelled,
    ),
    Story(
        "breaker closed", half_silent, (("breaker_open", "page", "passed"),), told=("closed", "page"),
        holds=opened_and_closed, goes_on=looked_at, besides=("control_plane_delay", "node_dead"),
        settings=settings("fast"), nodes=FOUR, trains_s=40.0,
    ),
)  # fmt: skip
