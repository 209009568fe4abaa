"""Folding checksums: what is believed is what was told last, however it comes; what comes without end fills nothing."""

import random

import pytest

from rankpulse.core import checksums
from rankpulse.core.checksum_steps import KEYS_MAX
from rankpulse.core.checksums import Row, Told
from rankpulse.core.fold_checksums import STEPS_KEPT, ChecksumsFolder
from rankpulse.core.records import CHECKSUMS, Observation
from rankpulse.core.slot_checks import GROUPS_MAX, Check


def tell(folder: ChecksumsFolder, node: str, seq: int, step: int, *rows: Row) -> None:
    detail = checksums.detail(Told(step, rows))
    obs = Observation(node=node, inc=1, seq=seq, at=0.0, kind=CHECKSUMS, detail=detail)
    assert folder.heard("u", 1, f"{node}/{seq}", obs, 0.0) == ""


@pytest.mark.parametrize("seed", range(40))
def test_the_verdict_is_that_on_all_that_was_told_last(seed: int) -> None:
    """Against all words in one table: ranks that correct themselves, late ones, groups of two sizes."""
    chance = random.Random(seed)
    folder, table = ChecksumsFolder(), dict[int, dict[int, dict[int, Check]]]()
    for seq in range(60):
        step, rank, group = chance.randrange(STEPS_KEPT), chance.randrange(5), chance.randrange(2)
        check = Check(group, 3 + 2 * group, chance.choice([7, 7, 7, 8]))
        tell(folder, f"n{rank}", seq, step, Row(rank, check))
        table.setdefault(step, {}).setdefault(group, {})[rank] = check
        if not any(map(checksums.differs, table.values())):
            most = max(len({rank for group in said.values() for rank in group}) for said in table.values())
            agreed = [number for number, said in table.items() if checksums.agrees(said, most)]
            table = {number: said for number, said in table.items() if number >= max(agreed, default=0)}
        for now, settled in ((0.0, ()), (99.0, tuple(table))):
            assert folder.verdict("u", 1, now) == checksums.judged(table, settled=settled)


def test_two_steps_told_in_turn_for_ever_fill_neither_memory_nor_store() -> None:
    folder, standing = ChecksumsFolder(), set[str]()
    for seq in range(5000):
        rows = [Row(0, Check(4 * seq + group, 2, seq)) for group in range(GROUPS_MAX)]
        tell(folder, "n0", seq, 10 + seq % 2, *rows)
        standing = (standing | {f"n0/{seq}"}) - set(folder.take_done())
        assert len(standing) <= 2 * KEYS_MAX
    [held] = folder._of.values()
    assert [len(step.groups) for step in held.steps.values()] == [GROUPS_MAX, GROUPS_MAX]
    folder.drop("u", 1)
    assert standing == set(folder.take_done())


def test_what_was_told_under_two_names_of_a_run_is_told_together() -> None:
    folder = ChecksumsFolder()
    for rank, name in ((0, "u"), (1, "u"), (2, "v")):
        row = Row(rank, Check(7, 3, rank // 2))
        obs = Observation(
            node=f"n{rank}", inc=1, seq=1, at=0.0, kind=CHECKSUMS, detail=checksums.detail(Told(10, (row,)))
        )
        assert folder.heard(name, 1, f"n{rank}/1", obs, 0.0) == ""
    folder.moved("v", "u")
    verdict = folder.verdict("u", 1, 0.0)
    assert verdict is not None
    assert (verdict.odd, verdict.certain) == ((2,), True)
    assert set(folder.evidence("u", 1, 10)) == {"n0/1", "n1/1", "n2/1"}
    folder.gone("n2/1")
    assert set(folder.evidence("u", 1, 10)) == {"n0/1", "n1/1"}
    assert folder.verdict("u", 1, 0.0) == verdict, "it is believed on"


def test_what_lies_on_nodes_that_have_not_told_yet_is_not_taken_for_well() -> None:
    """Two shards with two replicas each: ranks 0 and 1 hold one, 2 and 3 the other, in which rank 3 is corrupted."""
    folder = ChecksumsFolder()

    def said(step: int, *ranks: int) -> None:
        for rank in ranks:
            digest = step if rank < 3 or step < 30 else 666
            tell(folder, f"n{rank}", step, step, Row(rank, Check(rank // 2, 2, digest)))

    said(10, 0, 1, 2, 3)
    said(20, 0, 1)  # what the others had to say of it was lost
    said(30, 0, 1)
    assert folder.verdict("u", 1, 0.0) is None
    said(30, 2, 3)
    verdict = folder.verdict("u", 1, 0.0)
    assert verdict == checksums.Verdict(30, 10, (2, 3), False, 2), "nobody knows how the other shard was at step 20"
    said(40, 0, 1)
    assert not folder.well_again("u", 1), "two of four agree"
    said(40, 2, 3)
    assert not folder.well_again("u", 1)
