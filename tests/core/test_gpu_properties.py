"""Whatever agents tell of GPUs, in whatever order: nothing is raised, and no node has two open incidents of it."""

import time

from gpu_world import GpuWorld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankpulse.core import records as r
from rankpulse.core.settings import preset

NODES, BUSES = ("a", "b"), ("0000:18:00", "0000:5e:00", "")
WHATS = (
    "xid_79",
    "xid_149",
    "xid_48",
    "sxid_12028",
    "lost",
    "missing",
    "memory_pressure",
    "xid_x",
    "xid_١",
    "",
    "x" * 500,
)
LEVELS = ("ok", "watch", "unknown", "sick", "broken", "of another version")
ACTIONS = ("ignore", "restart_app", "inspect", "reset_gpu", "drain_reboot", "contact_vendor", "pray")
FINDINGS = st.builds(
    r.HealthFinding, st.sampled_from(WHATS), st.sampled_from(LEVELS), st.sampled_from(ACTIONS), st.text(max_size=20),
    st.floats(0, 2e9), st.floats(0, 2e9), st.integers(0, 9), st.none() | st.floats(0, 2e9),
    st.sampled_from(("", "kernel", "injected", "?")),
)  # fmt: skip
ROWS = st.builds(
    r.GpuRow, st.sampled_from(BUSES), st.text(max_size=5), findings=st.lists(FINDINGS, max_size=3).map(tuple)
)
HEALTH = st.builds(
    r.NodeHealth, node=st.sampled_from(NODES), inc=st.integers(0, 3), at=st.floats(0, 2e9),
    gpus=st.lists(ROWS, max_size=2).map(tuple), findings=st.lists(FINDINGS, max_size=2).map(tuple),
)  # fmt: skip
DETAIL = st.dictionaries(
    st.sampled_from(("how", "bus", "uuid", "index", "what", "level", "action", "text", "count", "injected", "source")),
    st.sampled_from(
        ("opened", "changed", "cleared", *BUSES[:2], "xid_79", "broken", "reset_gpu", True, None, -1, 1.5, 7, 2**70)
    ),
)
TURNS = st.tuples(st.sampled_from(NODES), DETAIL)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(HEALTH | TURNS | st.just("leader"), max_size=12))
def test_nothing_that_is_told_breaks_the_monitor(told: list[object]) -> None:
    world, epoch = GpuWorld(preset("drill")), 1
    world.arm()
    for one in told:
        if one == "leader":
            epoch += 1
            world.successor(epoch)
        elif isinstance(one, r.NodeHealth):
            world.put(world.keys.health(one.node), one)
        else:
            node, detail = one  # type: ignore[misc]
            world.observe(r.GPU_FAULT, node, None, **detail)
        world.run(0.2)
    world.run(1)
    assert world.engine.folder.refused == 0
    open_ = [i for i in world.incidents() if i.state == "open" and i.faults]
    named = [node for incident in open_ for node in incident.nodes]
    assert len(named) == len(set(named))
    before = len(world.incidents())
    world.successor(epoch + 1)
    world.run(2)
    assert len(world.incidents()) == before, "a new leader opens nothing twice"


def test_a_node_that_tells_of_thousands_of_faults_is_one_incident_and_costs_little() -> None:
    world, began = GpuWorld(preset("drill")), time.process_time()
    told = {"how": "opened", "level": "broken", "action": "drain_reboot", "text": "t" * 1000, "source": "kernel" * 50}
    for number in range(3000):
        world.observe(r.GPU_FAULT, "a", None, bus=f"0000:{number:x}:00", what="xid_79", index=True, count=True, **told)
    world.run(1)
    [incident] = world.incidents()
    assert (len(incident.faults), incident.faults[0].index, incident.faults[0].count) == (64, -1, 1)
    assert not [key for key in world.store if "/obs/" in key]
    assert time.process_time() - began < 6
