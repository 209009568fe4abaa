"""What a stack says that a rank is doing, where a name could be read in two ways."""

from rankpulse.core import stacks
from rankpulse.core.snapshot import Rank

TEARING_DOWN = (
    "train.py:40 main", "torch/utils/data/dataloader.py:1640 __del__",
    "torch/utils/data/dataloader.py:1591 _shutdown_workers", "multiprocessing/synchronize.py:331 set",
    "multiprocessing/synchronize.py:95 __enter__",
)  # fmt: skip


def words(*stack: str) -> str:
    [fold] = stacks.folded((Rank(0, stack=stack),))
    return stacks.in_words(fold)


def test_a_lock_between_processes_is_no_wait_for_a_gpu() -> None:
    """multiprocessing/synchronize.py has its name in common with torch.cuda.synchronize alone."""
    assert stacks.IN_WORDS[stacks.LOADER] in words(*TEARING_DOWN)
    assert stacks.IN_WORDS[stacks.DEVICE] in words("train.py:40 main", "torch/cuda/__init__.py:985 synchronize")
