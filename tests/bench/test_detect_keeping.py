"""What a run leaves on disk: days of the same detector and plan are taken up again, others are refused."""

from pathlib import Path

import msgspec
import pytest

from rankpulse.bench.detect.keeping import BadPlace, Keeper, Kind, code
from rankpulse.bench.detect.plan import quick
from rankpulse.bench.detect.run import run
from rankpulse.bench.detect.shift import Shift

PLAN = quick(1, 1.0, 2)


def test_days_come_back_also_when_more_are_wanted(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, PLAN)
    keeper.keep(Shift(0, True, {}))
    assert Keeper(tmp_path, PLAN).days() == {0: Shift(0, True, {})}
    assert list(Keeper(tmp_path, msgspec.structs.replace(PLAN, days=9)).days()) == [0]


def test_a_damaged_day_is_measured_again(tmp_path: Path) -> None:
    Keeper(tmp_path, PLAN).keep(Shift(0, True, {}))
    (tmp_path / "day-00000.json").write_bytes(b'{"day": 0, "who')
    assert Keeper(tmp_path, PLAN).days() == {}


def test_days_of_another_plan_or_of_other_code_are_refused(tmp_path: Path) -> None:
    Keeper(tmp_path, PLAN)
    with pytest.raises(BadPlace, match="another directory"):
        Keeper(tmp_path, msgspec.structs.replace(PLAN, seed=2))
    said = tmp_path / "plan.json"
    said.write_bytes(said.read_bytes().replace(code().encode(), b"0123456789ab"))
    assert msgspec.json.decode(said.read_bytes(), type=Kind).code == "0123456789ab"
    with pytest.raises(BadPlace, match="other code"):
        Keeper(tmp_path, PLAN)
    assert "0123456789ab" in said.read_text(), "it still says what lies there"


def test_a_place_where_nothing_can_be_kept_is_said_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below"):
        assert run(is_quick=True, out=str(place)) == 2
        assert "choose a directory that can be written" in capsys.readouterr().err
