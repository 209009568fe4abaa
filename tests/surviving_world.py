"""Random layouts of jobs, and the elements that ranks hold."""

import itertools
import random

from rankpulse.trainer.checkpoint.division import Item
from rankpulse.trainer.checkpoint.manifest import Box


def layout(chance: random.Random) -> list[list[Item]]:
    """DP x TP x PP: each stage has tensors that are whole, or cut over TP, and replicated over DP or, as in
    HSDP, cut once more within shards of DP."""
    dp, tp, pp = chance.choice((1, 2, 4)), chance.choice((1, 2, 3)), chance.choice((1, 2, 3))
    cut_dp = chance.choice([size for size in (1, 2, 4) if dp % size == 0])
    held: list[list[Item]] = []
    for d, t, p in itertools.product(range(dp), range(tp), range(pp)):
        mine = [Item(f"stage{p}.norm", "F32", (5,))]
        if chance.random() < 0.1 and d == 0 and t == 0:
            mine.append(Item(f"stage{p}.own", "F32", (2,)))
        rows, columns = 4 * tp, 4
        part = columns // cut_dp
        offsets, sizes = (4 * t, part * (d % cut_dp)), (4, part)
        mine.append(Item(f"stage{p}.weight", "F32", (rows, columns), Box(f"stage{p}.weight", offsets, sizes)))
        held.append(mine)
    return held


def elements(item: Item) -> set[tuple[str, tuple[int, ...]]]:
    at = item.box.offsets if item.box else (0,) * len(item.shape)
    size = item.box.sizes if item.box else item.shape
    return {
        (item.name, where) for where in itertools.product(*(range(o, o + n) for o, n in zip(at, size, strict=True)))
    }
