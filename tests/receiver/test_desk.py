"""From requests to what is done: once each, whatever comes twice, late, wrong or at the same time."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from receiver_world import KEY, NOW, SLURM_JOB, Office, Recorder, other, restart, settings, signed
from support import eventually

from rankpulse.receiver import journal as j
from rankpulse.receiver.acting import Later, Refused
from rankpulse.receiver.journal import BadJournal, Journal, audit


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def office(tmp_path: Path, recorder: Recorder) -> AsyncIterator[Office]:
    made = Office(settings(tmp_path), {"slurm": recorder})
    yield made
    await made.close()


def lines(office: Office) -> list[tuple[str, str]]:
    return [(one.what, one.text) for one in audit(office.settings.state_file)]


async def test_a_restart_is_answered_carried_out_and_audited(office: Office, recorder: Recorder) -> None:
    assert office.hear(restart()).status == 204
    await office.idle()
    (plan,) = recorder.plans
    assert plan.target == "77"
    assert [what for what, _ in lines(office)] == ["begun", "done"]
    assert office.vitals.actions["slurm", "done"] == 1
    had = office.journal.had(plan.id)
    assert had is not None
    assert had.state == j.DONE


async def test_the_same_id_again_does_nothing(office: Office, recorder: Recorder) -> None:
    """While it is done, after it is done, and signed anew."""
    recorder.gate.clear()
    replies = [office.hear(restart()) for _ in range(3)]
    recorder.gate.set()
    await office.idle()
    office.time.utc += 200
    replies.append(office.hear(restart()))
    assert [(one.status, one.text) for one in replies] == [(204, "accepted"), *[(204, "had already")] * 3]
    assert len(recorder.plans) == 1


async def test_a_replay_is_refused_also_after_a_restart_of_ours(
    office: Office, recorder: Recorder, tmp_path: Path
) -> None:
    recorded = signed(restart())
    assert office.hear(restart(), recorded).status == 204
    await office.idle()
    await office.close()
    again = Office(settings(tmp_path), {"slurm": recorder}, office.time)
    again.desk.take_up()
    assert again.hear(restart(), recorded).text == "had already"
    again.time.utc += 301
    assert again.hear(restart(), recorded).status == 401
    await again.idle()
    await again.close()
    assert len(recorder.plans) == 1


async def test_an_id_with_another_body_is_a_conflict(office: Office, recorder: Recorder) -> None:
    office.hear(restart())
    reply = office.hear(restart(summary="another"))
    assert (reply.status, reply.text) == (409, "another event had this id")
    await office.idle()
    assert len(recorder.plans) == 1


@pytest.mark.parametrize("event", ["page", "closed", "test"])
async def test_other_events_are_audited_and_nothing_is_done(office: Office, recorder: Recorder, event: str) -> None:
    assert office.hear(other(event)).status == 204
    await office.idle()
    assert recorder.plans == []
    ((what, text),) = lines(office)
    assert (what, event in text) == ("heard", True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (restart(cluster="lab"), 403),
        (restart(run_id="a;b"), 403),
        (restart(run_id="llama"), 403),  # no number of a Slurm job
        (restart(at=NOW - 3601), 409),
    ],
)
async def test_what_is_denied_is_audited_once_and_taken_when_the_settings_allow_it(
    office: Office, recorder: Recorder, tmp_path: Path, body: bytes, status: int
) -> None:
    assert [office.hear(body).status for _ in range(3)] == [status] * 3
    assert [what for what, _ in lines(office)] == ["denied"]
    assert recorder.plans == []
    await office.close()
    job = {**SLURM_JOB, "target": "77"}
    other_ = Office(
        settings(tmp_path, job, clusters=["prod", "lab"], limits={"stale_s": 7200.0}), {"slurm": recorder}, office.time
    )
    assert other_.hear(body).status == (403 if b"a;b" in body else 204)
    await other_.idle()
    await other_.close()


async def test_garbage_from_a_key_holder_is_refused_and_audited(office: Office) -> None:
    body = b'{"id": "x"}'
    reply = office.hear(body, signed(body, id_="x"))
    assert reply.status == 400
    assert [what for what, _ in lines(office)] == ["denied"]


async def test_forged_ones_change_nothing_and_are_told_less_and_less(office: Office) -> None:
    forged = signed(restart(), keys=("f" * 32,))
    statuses = [office.hear(restart(), forged, "10.0.0.9").status for _ in range(40)]
    assert statuses == [401] * 30 + [429] * 10
    assert office.hear(restart(), forged, "10.0.0.8").status == 401
    assert office.hear(restart(), caller="10.0.0.9").status == 204  # who has the key is not kept out
    office.time.utc += 2.0
    assert office.hear(restart(2), forged, "10.0.0.9").status == 401
    assert office.vitals.refused["signature"] == 42
    await office.idle()
    assert [what for what, _ in lines(office)] == ["begun", "done"]


async def test_many_addresses_cost_a_bounded_memory(office: Office) -> None:
    forged = signed(restart(), keys=("f" * 32,))
    for number in range(1500):
        office.hear(restart(), forged, f"10.0.{number // 256}.{number % 256}")
    assert len(office.desk._bad._left) <= 1000


async def test_one_restart_of_a_job_at_a_time(office: Office, recorder: Recorder) -> None:
    recorder.gate.clear()
    assert office.hear(restart(1)).status == 204
    busy = office.hear(restart(2))
    assert (busy.status, busy.retry_after_s) == (409, 15)
    assert "is being started again for prod/i0001-0001-restart" in busy.text
    assert office.hear(restart(3, run_id="78")).status == 204
    recorder.gate.set()
    await office.idle()
    assert office.hear(restart(2)).status == 204
    await office.idle()
    assert [plan.target for plan in recorder.plans] == ["77", "78", "77"]


async def test_too_much_at_once_is_for_later(tmp_path: Path, recorder: Recorder) -> None:
    office = Office(settings(tmp_path, limits={"waiting": 2, "at_once": 1}), {"slurm": recorder})
    recorder.gate.clear()
    assert [office.hear(restart(n, run_id=str(n))).status for n in (1, 2, 3)] == [204, 204, 503]
    await asyncio.sleep(0)
    assert len(recorder.plans) <= 1
    recorder.gate.set()
    await office.idle()
    assert office.hear(restart(3, run_id="3")).status == 204
    await office.idle()
    await office.close()
    assert len(recorder.plans) == 3


async def test_what_cannot_be_done_now_is_tried_again(office: Office, recorder: Recorder) -> None:
    recorder.ends = [Later("slurmctld is away"), Later("slurmctld is away")]
    office.hear(restart())
    await office.idle()
    assert [what for what, _ in lines(office)] == ["begun", "later", "later", "done"]


async def test_what_cannot_be_done_at_all_is_not(office: Office, recorder: Recorder) -> None:
    recorder.ends = [Refused("is CANCELLED")]
    office.hear(restart())
    await office.idle()
    assert lines(office)[-1] == ("failed", "is CANCELLED")
    assert office.vitals.actions["slurm", "failed"] == 1


async def test_trying_ends_when_the_monitor_calls_a_person(tmp_path: Path, recorder: Recorder) -> None:
    made = settings(tmp_path, acting={"retry_s": 0.01, "retry_max_s": 0.01, "give_up_after_s": 1.0})
    office = Office(made, {"slurm": recorder})
    recorder.ends = [Later("away")] * 5
    recorder.gate.clear()
    office.hear(restart())
    await asyncio.sleep(0)
    office.time.utc += 2.0
    recorder.gate.set()
    await office.idle()
    assert lines(office)[-1] == ("failed", "given up after 1 s: away")
    assert len(recorder.plans) == 1
    await office.close()


async def test_a_bug_in_an_actuator_ends_its_action_and_nothing_else(office: Office, recorder: Recorder) -> None:
    recorder.ends = [ZeroDivisionError()]
    office.hear(restart(1))
    await office.idle()
    assert lines(office)[-1] == ("failed", "a bug in rankpulse: ZeroDivisionError")
    assert office.hear(restart(2)).status == 204
    await office.idle()
    assert lines(office)[-1] == ("done", "restarted")


class Failing(Journal):
    """The disk does not take how an action ended, so many times."""

    left = 2

    def finish(self, id_: str, state: str, text: str, at: float) -> None:
        if self.left:
            self.left -= 1
            raise sqlite3.OperationalError("disk I/O error")
        super().finish(id_, state, text, at)


async def test_an_end_that_cannot_be_written_down_is_not_lost(tmp_path: Path, recorder: Recorder) -> None:
    office = Office(settings(tmp_path), {"slurm": recorder})
    office.journal.close()
    office.journal = office.work._journal = office.desk._journal = Failing(office.settings.state_file)
    office.hear(restart())
    await eventually(lambda: "disk I/O error" in office.vitals.trouble, 10, "the trouble")
    await office.idle()
    assert len(recorder.plans) == 3  # whoever acts must find out by itself that it was done
    assert lines(office)[-1] == ("done", "restarted")
    await office.close()


async def test_a_dry_run_says_what_it_would_do(tmp_path: Path, recorder: Recorder) -> None:
    office = Office(settings(tmp_path, dry_run=True), {"slurm": recorder})
    office.hear(restart())
    await office.idle()
    assert recorder.plans == []
    assert lines(office)[-1] == ("dry", "dry run, would: restart 77")
    await office.close()


async def test_what_was_begun_is_taken_up_by_the_next_of_us(office: Office, recorder: Recorder, tmp_path: Path) -> None:
    recorder.gate.clear()
    office.hear(restart())
    await asyncio.sleep(0)
    await office.close()
    recorder.gate.set()
    again = Office(settings(tmp_path), {"slurm": recorder}, office.time)
    again.desk.take_up()
    await again.idle()
    assert [what for what, _ in lines(again)] == ["begun", "again", "done"]
    assert [plan.may_begin for plan in recorder.plans] == [True, True]
    await again.close()


async def test_it_is_not_begun_hours_later(office: Office, recorder: Recorder, tmp_path: Path) -> None:
    recorder.gate.clear()
    office.hear(restart())
    await asyncio.sleep(0)
    await office.close()
    office.time.utc += 7200
    recorder.gate.set()
    again = Office(settings(tmp_path), {"slurm": recorder}, office.time)
    again.desk.take_up()
    await again.idle()
    assert [plan.may_begin for plan in recorder.plans] == [True, False]
    await again.close()


async def test_what_is_not_allowed_any_more_is_not_taken_up(office: Office, recorder: Recorder, tmp_path: Path) -> None:
    recorder.gate.clear()
    office.hear(restart())
    await asyncio.sleep(0)
    await office.close()
    recorder.gate.set()
    again = Office(settings(tmp_path, {**SLURM_JOB, "run_id": "78"}), {"slurm": recorder}, office.time)
    again.desk.take_up()
    await again.idle()
    assert len(recorder.plans) == 1
    assert lines(again)[-1] == ("failed", "not taken up again: run '77' is none of `jobs`")
    await again.close()


async def test_a_disk_that_is_full_takes_nothing_and_does_nothing(office: Office, recorder: Recorder) -> None:
    pages = office.journal._db.execute("PRAGMA page_count").fetchone()[0]
    office.journal._db.execute(f"PRAGMA max_page_count = {pages}")
    replies = [office.hear(restart(n, run_id=str(n), summary="x" * 900)) for n in range(1, 30)]
    assert replies[-1].status == 503
    assert "full" in office.vitals.trouble
    await office.idle()
    taken = sum(reply.status == 204 for reply in replies)
    assert len(recorder.plans) == taken
    office.journal._db.execute("PRAGMA max_page_count = 100000")
    assert office.hear(restart(99, run_id="99")).status == 204
    assert office.vitals.trouble == ""
    await office.idle()


async def test_a_key_is_changed_without_a_restart(office: Office, tmp_path: Path) -> None:
    new = signed(restart(), keys=("n" * 32,))
    assert office.hear(restart(), new).status == 401
    (tmp_path / "key").write_text(f"{KEY}\n{'n' * 32}\n")
    assert office.hear(restart(), new).status == 204
    (tmp_path / "key").write_text("short\n")
    assert office.hear(restart(2), signed(restart(2))).status == 503
    assert "a key has at least 16 bytes" in office.vitals.trouble
    await office.idle()


# --- the file


def test_one_receiver_at_a_time_has_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    first = Journal(path)
    with pytest.raises(BadJournal, match="another receiver has it"):
        Journal(path)
    first.close()
    Journal(path).close()


def test_files_that_cannot_serve_are_said(tmp_path: Path) -> None:
    with pytest.raises(BadJournal, match="No such file"):
        Journal(str(tmp_path / "none" / "journal.db"))
    junk = tmp_path / "junk"
    junk.write_bytes(b"not a database" * 100)
    with pytest.raises(BadJournal, match="not a database"):
        Journal(str(junk))
    newer = str(tmp_path / "newer.db")
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 7")
    db.close()
    with pytest.raises(BadJournal, match=r"another version of rankpulse \(7, here 1\)"):
        Journal(newer)
    with pytest.raises(BadJournal):
        list(audit(str(tmp_path / "nothing.db")))


async def test_ids_outlive_signatures_and_are_forgotten_in_the_end(office: Office, recorder: Recorder) -> None:
    office.hear(restart(1))
    await office.idle()
    recorder.gate.clear()
    office.hear(restart(2))
    await asyncio.sleep(0)
    office.journal.prune(NOW - 1)
    assert office.journal.had("prod/i0001-0001-restart/1800000000") is not None
    office.journal.prune(NOW + 1)
    assert office.journal.had("prod/i0001-0001-restart/1800000000") is None
    assert [one.id for one in office.journal.unfinished()] == ["prod/i0001-0002-restart/1800000000"]
    recorder.gate.set()
    await office.idle()
