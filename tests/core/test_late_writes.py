"""Writes that were given up by who sent them and arrive all the same, after what was written since."""

from core_world import World

from rankpulse.core import codec
from rankpulse.core import records as r

NODES = {"node-a": 2, "node-b": 2}


def test_an_incident_that_was_closed_stays_closed() -> None:
    world = World()
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(10)
    world.ends(procs[3], signal=9, held=True)
    world.run(0.3)
    [order] = world.of_kind("restart")
    late, _ = world.store[world.keys.incident(order.incident)]
    for proc in procs[:3]:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.meets(NODES, 2, first_step=61)
    world.run(5)
    assert [incident.outcome for incident in world.incidents()] == ["recovered"]
    world.put(world.keys.incident(order.incident), codec.decode(r.Incident, late))
    assert [incident.state for incident in world.incidents()] == ["open"]
    world.run(0.2)
    assert [incident.outcome for incident in world.incidents()] == ["recovered"]
