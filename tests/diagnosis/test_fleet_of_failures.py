"""What ends runs on 16,384 GPUs, in the shares in which it was published: each kind is told, and blames what it may.

419 interruptions in 54 days that nobody had planned: 148 by GPUs, 72 by their memory, 54 by software, 35 by network and
cables, 6 by silent corruption of data; the others had causes of many kinds.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from diagnosis_stories import told
from diagnosis_world import IN_ALL_REDUCE, LOST, Json, job, name, nodes, waiting

from rankpulse.core import policy
from rankpulse.core import verdict as v
from rankpulse.core.cost_rule import NODE

DAYS: Final = 54
ALL: Final = 419
NODES: Final = 2048
RANKS: Final = 64  # of the jobs here
AT: Final = 9_950.0


def failed(victim: int, error: str) -> Json:
    s = job(RANKS, exit_code=1, error=LOST, error_at=AT + 5, step=700, loss=2.1)
    s["ranks"][victim] |= {"error": error, "error_at": AT}
    nodes(s, silent_s=0.4, agent_alive=True)
    return s


def of_gpu(victim: int, random: Random) -> Json:
    code, text = random.choice(
        [(79, "GPU has fallen off the bus."), (119, "Timeout waiting for RPC from GPU"), (74, "")]
    )
    s = failed(victim, "RuntimeError: CUDA error: unspecified launch failure")
    s["devices"] = [{"node": name(victim), "gpu": victim % 8, "xids": [{"code": code, "text": text, "at": AT - 1}]}]
    return s


def of_memory(victim: int, random: Random) -> Json:
    s = failed(victim, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    s["devices"] = [
        {"node": name(victim), "gpu": victim % 8, "xids": [{"code": random.choice((48, 95)), "at": AT - 1}]}
    ]
    return s


def of_software(victim: int, random: Random) -> Json:
    return failed(victim, random.choice(["KeyError: 'labels'", "ValueError: bad shape", "AssertionError: empty batch"]))


def of_network(victim: int, random: Random) -> Json:
    s = job(RANKS, stack=IN_ALL_REDUCE, positions=waiting(100))
    s["job"]["still_s"] = 90.0
    reports = nodes(s, silent_s=0.4, agent_alive=True)
    for number, node in enumerate(reports, start=1):
        node["addresses"] = [f"10.0.0.{number}"]
    if random.random() < 0.5:
        reports[victim // 8]["links"] = [{"name": "mlx5_3", "state": "down"}]
    else:
        there = (victim // 8 + 1) % len(reports)
        s["ranks"][victim]["unacked"] = [f"10.0.0.{there + 1}:40112"]
        s["ranks"][8 * there]["unacked"] = [f"10.0.0.{victim // 8 + 1}:51000"]
    return s


def of_corruption(victim: int, random: Random) -> Json:
    s = job(RANKS, step=700, loss=2.1)
    s["ranks"][victim]["loss"] = random.choice(("nan", "inf"))
    return s


class Kind(NamedTuple):
    count: int
    make: Callable[[int, Random], Json]
    klass: str
    action: str
    kinds: tuple[str, ...]


KINDS: Final = (
    Kind(148, of_gpu, v.GPU_FAULT, policy.RESTART_WITHOUT, ("gpu_fault", "nvlink_domain")),
    Kind(72, of_memory, v.GPU_FAULT, policy.RESTART_WITHOUT, ("gpu_fault",)),
    Kind(54, of_software, v.WORKER_DEAD, policy.RESTART, ("app_bug",)),
    Kind(35, of_network, v.NETWORK_STALL, policy.RESTART, ("network",)),
    Kind(6, of_corruption, v.NUMERICAL, policy.PAGE, ("app_bug",)),
)


def test_all_that_ends_large_runs_is_told_by_its_kind_and_blames_the_machine_it_was_on() -> None:
    random = Random(54)
    fleet = [kind for kind in KINDS for _ in range(kind.count)]
    random.shuffle(fleet)
    for kind in fleet:
        victim = random.randrange(RANKS)
        found = told(kind.make(victim, random))
        assert (found.klass, found.action) == (kind.klass, kind.action), (kind.make.__name__, victim, found.summary)
        assert found.kind in kind.kinds, found.summary
        assert name(victim) in found.culprits.nodes, found.summary


def test_in_such_a_fleet_most_failures_leave_a_machine_out_and_none_of_the_programs_does() -> None:
    left_out: Counter[bool] = Counter()
    for kind in KINDS:
        left_out[told(kind.make(9, Random(1))).action == policy.RESTART_WITHOUT] += kind.count
    assert left_out[True] / left_out.total() > 2 / 3


def test_the_prior_of_the_cost_rule_is_of_the_size_that_was_published() -> None:
    published = ALL / DAYS / NODES
    assert published / 2 < NODE.deaths < published * 2
