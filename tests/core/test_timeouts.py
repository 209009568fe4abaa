"""The hierarchy of timeouts: what holds by default, and what each break of it is said to lead to."""

from dataclasses import replace

import pytest

from rankpulse.core import timeouts
from rankpulse.core.settings import PRESETS, parse
from rankpulse.core.timeouts import OK, WARN, Around

SLURM = Around(scheduler="slurm", kill_wait_s=30.0, node_down_s=300.0, watchdog_s=480.0)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_lies_inside_what_torch_and_slurm_do_by_default(preset: str) -> None:
    pairs = timeouts.judged(timeouts.limits(parse({"preset": preset}), SLURM))
    assert len(pairs) == 8
    wrong = [pair.text for pair in pairs if pair.level != OK]
    # far stores: leadership changes slower than a holder waits; told, with the remedy
    assert wrong == [] or (preset == "wan" and all("RANKPULSE_HOLD_S" in text for text in wrong))


@pytest.mark.parametrize(
    ("tree", "around", "words"),
    [
        ({"policy": {"hang_act_s": 700.0}}, Around(), "torch ends a hung job before"),
        ({}, Around(process_group_s=20.0), "torch ends a hung job before"),
        ({}, Around(watchdog_s=10.0), "NCCL's monitor thread"),
        ({"monitor": {"lease_ttl_s": 20.0}}, Around(), "holders let go"),
        ({}, Around(grace_s=30.0), "torchrun kills the holder"),
        ({"policy": {"round_s": 15.0}}, Around(), "the webhook is told before"),
        ({"policy": {"round_s": 700.0}}, Around(), "torchrun gives up its rendezvous"),
        ({}, replace(SLURM, kill_wait_s=5.0), "the scheduler kills trainers"),
        ({}, replace(SLURM, node_down_s=10.0), "the scheduler ends the whole job"),
    ],
)
def test_what_does_not_lie_inside_is_told_with_its_consequence(tree: dict, around: Around, words: str) -> None:
    broken = [pair for pair in timeouts.judged(timeouts.limits(parse(tree), around)) if pair.level == WARN]
    assert len(broken) == 1
    assert words in broken[0].text
    assert broken[0].remedy


def test_what_is_not_known_is_not_judged() -> None:
    known = timeouts.limits(parse({}), Around())
    assert not {"watchdog", "kill_wait", "node_down"} & known.keys()
    assert {pair.outer.layer for pair in timeouts.judged(known)} <= {timeouts.OURS, timeouts.TORCH}
