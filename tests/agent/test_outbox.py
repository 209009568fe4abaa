"""Observations are numbered once, kept over restarts, and bounded."""

import shutil
from collections.abc import Callable
from pathlib import Path

from rankpulse.agent.facts import Fact
from rankpulse.agent.folder import private
from rankpulse.agent.outbox import Outbox
from rankpulse.core import records


def box(directory: Path | None, limit: int = 100, node: str = "n1", warn: Callable[[str], None] = print) -> Outbox:
    folder = private(str(directory)) if directory else None
    outbox = Outbox(node, folder, limit, lambda: 1000.0, warn=warn)
    outbox.load()
    return outbox


def drain(outbox: Outbox) -> list[tuple[int, int, str]]:
    sent = []
    while entry := outbox.head():
        sent.append((entry.obs.inc, entry.obs.seq, entry.obs.kind))
        outbox.done(entry)
    return sent


def test_numbered_in_order_once_the_incarnation_is_known(tmp_path: Path) -> None:
    outbox = box(tmp_path)
    outbox.add(Fact("a"))
    outbox.add(Fact("b"))
    assert outbox.head() is None
    outbox.number(4)
    outbox.add(Fact("c"))
    assert drain(outbox) == [(4, 1, "a"), (4, 2, "b"), (4, 3, "c")]
    assert list(tmp_path.glob("*.json")) == []


def test_what_was_not_sent_is_sent_by_the_next_under_its_own_number(tmp_path: Path) -> None:
    first = box(tmp_path)
    first.number(1)
    first.add(Fact("a"))
    second = box(tmp_path)
    second.add(Fact("b"))
    third = box(tmp_path)  # the second never learned its incarnation
    third.number(2)
    third.add(Fact("c"))
    assert drain(third) == [(1, 1, "a"), (2, 1, "b"), (2, 2, "c")]


def test_the_oldest_are_dropped_and_that_is_declared_at_the_end(tmp_path: Path) -> None:
    outbox = box(tmp_path, limit=3)
    outbox.number(1)
    for kind in "abcde":
        outbox.add(Fact(kind))
    assert outbox.dropped == 2
    assert len(list(tmp_path.glob("*.json"))) == 3
    assert [kind for _, _, kind in drain(outbox)] == ["c", "d", "e", records.SPOOL_DROPPED]


def test_a_corrupt_file_is_set_aside(tmp_path: Path) -> None:
    first = box(tmp_path)
    first.number(1)
    first.add(Fact("a"))
    first.add(Fact("b"))
    good, bad = sorted(tmp_path.glob("*.json"))
    bad.write_bytes(b"\xff" * 10)
    (tmp_path / "00000001-0000000009.json").symlink_to(tmp_path / "nothing")
    told: list[str] = []
    second = box(tmp_path, warn=told.append)
    second.number(2)
    assert drain(second) == [(1, 1, "a")]
    assert ["set aside" in text for text in told] == [True, True]
    assert not good.exists()
    assert bad.with_suffix(".json.bad").exists()


def test_what_another_node_name_left_is_told_under_ours(tmp_path: Path) -> None:
    first = box(tmp_path, node="old")
    first.number(7)
    first.add(Fact("a"))
    second = box(tmp_path, node="new")
    second.number(3)
    assert second.head() is not None
    assert drain(second) == [(3, 1, "a")]
    assert list(tmp_path.glob("*.json")) == []


def test_an_incarnation_is_remembered_also_when_nothing_waits(tmp_path: Path) -> None:
    outbox = box(tmp_path)
    outbox.remember_inc(6)
    assert box(tmp_path).last_inc() == 6


def test_incarnations_that_cannot_be_are_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "inc").write_text("9" * 20)
    (tmp_path / f"{'9' * 30}-0000000001.json").write_text("{}")
    assert box(tmp_path).last_inc() == 0
    box(tmp_path).remember_inc(6)
    assert box(tmp_path).last_inc() == 6


def test_what_waits_moves_to_another_directory(tmp_path: Path) -> None:
    outbox = box(tmp_path / "a")
    outbox.number(4)
    outbox.add(Fact("a"))
    shutil.rmtree(tmp_path / "a")
    outbox.move(private(str(tmp_path / "b")))
    again = box(tmp_path / "b")
    assert again.last_inc() == 4
    again.number(5)
    assert drain(again) == [(4, 1, "a")]


def test_without_a_disk_everything_is_kept_in_memory(tmp_path: Path) -> None:
    problems: list[str] = []
    gone = private(str(tmp_path / "gone"))
    (tmp_path / "gone").rmdir()
    outbox = Outbox("n1", gone, 10, lambda: 0.0, problems.append)
    outbox.number(1)
    outbox.add(Fact("a"))
    assert "memory" in problems[0]
    assert drain(outbox) == [(1, 1, "a")]
    nowhere = box(None)
    nowhere.number(1)
    nowhere.add(Fact("b"))
    assert drain(nowhere) == [(1, 1, "b")]
