"""An imprint takes a beat for one of the same processes only if it is, whatever bytes a job puts into its rows."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import imprint as im
from rankpulse.core import records as r

GAP_STEP = 0xC1C1_C1C1
RUN = r.RunRow("job", "meeting", "1.1", 16, True)
# near one another, and near the bytes of a gap
numbers = st.sampled_from((-1, 0, 1, 127, 128, 0xC1, 0xC1C1, 0xCE, 0xCEC1C1C1, GAP_STEP - 1, GAP_STEP, 2**63))
rows = st.builds(
    r.RankRow, st.just(0), *[numbers] * 4, st.sampled_from("RSDé") | st.just("long"), numbers, *[numbers] * 2
)


def beat(*ranks: r.RankRow, runs: tuple[r.RunRow, ...] = (RUN,)) -> r.Beat:
    return r.Beat(node="n", inc=1, seq=1, at=0.0, runs=runs, phases=("train",), ranks=ranks)


def row(rank: int, **change: object) -> r.RankRow:
    return msgspec.structs.replace(r.RankRow(0, rank, rank, 4000 + rank, 77_000, "S", 0, 5, 1), **change)  # type: ignore[arg-type]


def at(step: int, ranks: tuple[r.RankRow, ...]) -> tuple[r.RankRow, ...]:
    return tuple(msgspec.structs.replace(one, step=step) for one in ranks)


@given(st.lists(rows, min_size=1, max_size=3).map(tuple), st.lists(rows, min_size=1, max_size=3).map(tuple), numbers)
def test_it_fits_beats_that_differ_in_nothing_but_one_step(
    first: tuple[r.RankRow, ...], second: tuple[r.RankRow, ...], step: int
) -> None:
    found = im.imprint(beat(*first))
    for ranks in (at(step, first), second):
        fits = found is not None and im.said(beat(*ranks)) == im.filled(found, ranks[0].step)
        assert fits == (found is not None and ranks == at(ranks[0].step, first))


@pytest.mark.parametrize("change", [{"pid": 4005}, {"state": "R"}, {"phase": 1}, {"first_step": 2}, {"step": 7}])
def test_one_row_that_tells_anything_else_does_not_fit(change: dict[str, object]) -> None:
    found = im.imprint(beat(row(0), row(1)))
    assert found is not None
    assert im.said(beat(row(0, step=6), row(1, step=6))) == im.filled(found, 6)
    assert im.said(beat(row(0), row(1, **change))) != im.filled(found, 5)
    assert im.said(beat(row(0), row(1), runs=(RUN, RUN))) != im.filled(found, 5)


def test_rows_that_hold_a_gap_leave_no_imprint() -> None:
    assert im.imprint(beat(row(0, pid=GAP_STEP))) is None
    assert im.imprint(beat(row(0, state="sleeping"))) is None
    assert im.imprint(beat(row(0, phase=200))) is None
    with pytest.raises(OverflowError):
        im.imprint(beat(row(0, pid=2**70)))


def test_other_states_make_the_imprint_of_a_beat_that_shows_them() -> None:
    found = im.imprint(beat(row(0), row(1), row(2)))
    assert found is not None
    places = im.states_at(found)
    changed = im.with_states(found, places, ["S", "S", "S"], ["S", "R", "t"])
    assert changed == im.imprint(beat(row(0), row(1, state="R"), row(2, state="t")))
    for wrong in (["S", "S"], ["S", "S", ""], ["S", "S", "RR"], ["S", "S", "é"]):
        with pytest.raises(ValueError, match=r"is no state|shorter"):
            im.with_states(found, places, ["S", "S", "S"], wrong)
