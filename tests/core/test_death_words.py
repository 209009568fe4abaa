"""What the death of a worker is called by its last words, and the same death again."""

import pytest
from core_world import World

NODES = {"node-a": 2, "node-b": 2}


def dies(world: World, rank: int, **detail: object) -> None:
    proc = next(proc for proc in world.procs if proc.rank == rank and proc.alive)
    world.training = False
    world.ends(proc, held=True, **detail)
    world.run(3)


@pytest.mark.parametrize(
    ("error", "message", "klass"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", "oom"),
        ("FloatingPointError", "loss is nan at step 7", "numerical"),
        ("RuntimeError", "Detected mismatch between collectives on ranks", "collective_mismatch"),
        ("KeyError", "'weight'", "worker_dead"),
    ],
)
def test_the_class_is_bettered_by_the_words_and_what_is_done_stays(error: str, message: str, klass: str) -> None:
    world = World()
    world.arm()
    world.meets(NODES, 1)
    world.run(30)
    dies(world, 1, code=1, error=error, message=message)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.nodes) == (klass, "restart", ("node-a",))
    assert incident.signature.startswith(f"{klass}:")
    assert not any(char.isdigit() for char in incident.signature)
    assert len(world.of_kind("restart")) == 1


def test_the_same_death_again_is_told_with_where_it_was_and_what_did_not_help() -> None:
    world = World()
    world.arm()
    world.meets(NODES, 1)
    world.run(30)
    dies(world, 1, code=1, error="OutOfMemoryError", message="CUDA out of memory. Tried to allocate 2.00 GiB")
    order = world.of_kind("restart")[0]
    for proc in [proc for proc in world.procs if proc.alive]:
        world.ends(proc, signal=9, order_id=order.order_id)
    world.training = True
    world.meets(NODES, 2, first_step=91)
    world.run(20)
    dies(world, 3, code=1, error="OutOfMemoryError", message="CUDA out of memory. Tried to allocate 9.50 GiB")
    incident = world.incidents()[-1]
    told = "the same failure was seen 1 time before, on node-a; the last fix (restart) did not hold"
    assert told in incident.reasons
    assert incident.signature == world.incidents()[0].signature


def test_a_kill_that_is_told_of_later_corrects_what_words_said() -> None:
    world = World()
    world.arm()
    world.meets(NODES, 1)
    world.run(30)
    world.training = False
    procs = list(world.procs)
    world.ends(procs[0], code=1, error="RuntimeError", message="Detected mismatch between collectives", held=True)
    world.run(0.5)
    world.ends(procs[3], signal=9, held=True)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, [m.rank for m in incident.culprits]) == ("worker_dead", [3])
    assert len(world.of_kind("restart")) == 1
