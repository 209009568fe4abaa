"""Slurm: what is done to which job, and which ones are left alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from receiver_world import SLURM_JOB, SlurmWorld, restart, settings

from rankpulse.receiver.acting import Later, Ran, Refused
from rankpulse.receiver.deciding import Plan, plan
from rankpulse.receiver.reading import event
from rankpulse.receiver.settings import SlurmSettings
from rankpulse.receiver.slurm import Slurm


class Note:
    """`Scribe` in memory."""

    def __init__(self) -> None:
        self.lines, self.memory = list[tuple[str, str]](), dict[str, str]()

    def note(self, what: str, text: str) -> None:
        self.lines.append((what, text))

    def remember(self, name: str, value: str) -> None:
        self.memory[name] = value

    def remembered(self, name: str) -> str | None:
        return self.memory.get(name)


def asked(folder: Path, number: int = 1, **change: Any) -> Plan:
    body = restart(number, **change)
    made = plan(event(body, json.loads(body)["id"]), settings(folder, SLURM_JOB))
    assert isinstance(made, Plan)
    return made


def slurm(world: Any, **change: Any) -> Slurm:
    return Slurm(SlurmSettings(**change), world, look_every_s=0)


MARK = "548790ded653bf34"  # of the first event


async def test_a_running_job_is_requeued_without_the_node(tmp_path: Path) -> None:
    world, note = SlurmWorld(), Note()
    assert await slurm(world).restart(asked(tmp_path), note) == "job 77: requeued"
    assert world.changes == [
        f"scontrol update JobId=77 AdminComment=rankpulse={MARK}:0:begun",
        "scontrol requeuehold 77",
        "scontrol update JobId=77 ExcNodeList=gpu07",
        "scontrol release 77",
        f"scontrol update JobId=77 AdminComment=rankpulse={MARK}:0:done",
    ]
    assert [what for what, _ in note.lines] == ["does", "did"] * 5
    world.start()


async def test_the_same_decision_again_does_nothing_also_much_later(tmp_path: Path) -> None:
    world = SlurmWorld()
    await slurm(world).restart(asked(tmp_path), Note())
    before = len(world.changes)
    assert "before" in await slurm(world).restart(asked(tmp_path), Note())
    world.start()
    assert "before" in await slurm(world).restart(asked(tmp_path), Note())
    assert len(world.changes) == before


async def test_another_decision_restarts_it_anew_and_adds_its_node(tmp_path: Path) -> None:
    world = SlurmWorld()
    world.admin = "by hand"
    await slurm(world).restart(asked(tmp_path), Note())
    world.start()
    await slurm(world).restart(asked(tmp_path, 2, without=("gpu08",)), Note())
    assert (world.requeues, world.excluded, world.restarts) == (2, "gpu07,gpu08", 2)
    assert world.admin.startswith("by hand rankpulse=")


async def test_dry_run_says_every_step_and_does_none(tmp_path: Path) -> None:
    world = SlurmWorld()
    steps = await slurm(world).would(asked(tmp_path), Note())
    assert world.changes == []
    assert [one.partition(":")[0] for one in steps] == [
        "scontrol update JobId=77 AdminComment=rankpulse=548790ded653bf34",
        "scontrol requeuehold 77",
        "wait",
        "scontrol update JobId=77 ExcNodeList=gpu07",
        "scontrol release 77",
        "scontrol update JobId=77 AdminComment=rankpulse=548790ded653bf34",
    ]


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "OUT_OF_MEMORY"])
async def test_a_job_that_failed_is_started_again(tmp_path: Path, state: str) -> None:
    world = SlurmWorld(state)
    await slurm(world).restart(asked(tmp_path), Note())
    assert (world.requeues, world.state, world.held) == (1, "PENDING", False)


@pytest.mark.parametrize(
    "state", ["CANCELLED", "COMPLETED", "TIMEOUT", "DEADLINE", "SUSPENDED", "STOPPED", "PREEMPTED"]
)
async def test_what_ended_on_purpose_is_left_alone(tmp_path: Path, state: str) -> None:
    world = SlurmWorld(state)
    with pytest.raises(Refused, match=f"is {state}"):
        await slurm(world).restart(asked(tmp_path), Note())
    with pytest.raises(Refused):
        await slurm(world).would(asked(tmp_path), Note())
    assert world.changes == []


async def test_what_slurm_has_requeued_by_itself_is_only_kept_from_the_node(tmp_path: Path) -> None:
    world = SlurmWorld("PENDING")
    world.restarts = 1
    await slurm(world).restart(asked(tmp_path), Note())
    assert (world.requeues, world.excluded) == (0, "gpu07")
    assert not any("release" in one for one in world.changes)


async def test_what_a_person_holds_stays_held(tmp_path: Path) -> None:
    world = SlurmWorld("PENDING")
    world.held = True
    with pytest.raises(Refused, match="is held by somebody"):
        await slurm(world).restart(asked(tmp_path), Note())
    assert world.held


async def test_a_job_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    world = SlurmWorld(user="bob")
    with pytest.raises(Refused, match="belongs to 'bob'"):
        await slurm(world).restart(asked(tmp_path), Note())
    assert world.changes == []


async def test_a_label_with_another_jobs_number_is_found_out(tmp_path: Path) -> None:
    world = SlurmWorld()
    with pytest.raises(Refused, match="another job's number"):
        await slurm(world).restart(asked(tmp_path, nodes=("other01",)), Note())
    assert world.changes == []
    await slurm(world).restart(asked(tmp_path, nodes=("gpu08.example.com",)), Note())
    assert world.requeues == 1
    elsewhere = SlurmWorld()
    await slurm(elsewhere, same_nodes=False).restart(asked(tmp_path, nodes=("other01",)), Note())
    assert elsewhere.requeues == 1


async def test_a_name_that_looks_like_fields_forges_nothing_that_counts(tmp_path: Path) -> None:
    world = SlurmWorld("CANCELLED", user="bob")
    world.name = "x UserId=ann(1) JobState=RUNNING Restarts=0 ExcNodeList=gpu99 "
    world.comment = "a|b|RUNNING|\nfoo|bar"
    with pytest.raises(Refused, match="belongs to 'bob'"):
        await slurm(world).restart(asked(tmp_path), Note())


async def test_the_mark_may_stand_in_the_comment(tmp_path: Path) -> None:
    world = SlurmWorld()
    await slurm(world, mark="Comment").restart(asked(tmp_path), Note())
    assert world.comment == f"of ann rankpulse={MARK}:0:done"
    assert world.admin == ""
    assert "before" in await slurm(world, mark="Comment").restart(asked(tmp_path), Note())


async def test_a_decision_that_is_old_is_not_begun_but_brought_to_its_end(tmp_path: Path) -> None:
    world = SlurmWorld()
    old = asked(tmp_path)._replace(may_begin=False)
    with pytest.raises(Refused, match="too old"):
        await slurm(world).restart(old, Note())
    assert world.changes == []
    world.admin, world.state, world.restarts, world.held = f"rankpulse={MARK}:0:begun", "PENDING", 1, True
    note = Note()
    note.remember("restarts", "0")
    await slurm(world).restart(old, note)
    assert (world.held, world.excluded, world.requeues) == (False, "gpu07", 0)


async def test_the_mark_is_enough_where_our_memory_is_lost(tmp_path: Path) -> None:
    world = SlurmWorld("PENDING")
    world.admin, world.restarts, world.held = f"rankpulse={MARK}:0:begun", 1, True
    await slurm(world).restart(asked(tmp_path), Note())
    assert (world.held, world.excluded, world.requeues) == (False, "gpu07", 0)


async def test_one_that_failed_anew_after_its_restart_is_another_story(tmp_path: Path) -> None:
    world, note = SlurmWorld("FAILED"), Note()
    note.remember("restarts", "0")
    world.restarts = 1
    assert "before" in await slurm(world).restart(asked(tmp_path), note)
    assert world.changes == []


async def test_nodes_whose_names_are_none_are_not_handed_on(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no name of a node"):
        await slurm(SlurmWorld()).restart(asked(tmp_path, without=("gpu[01-99]",)), Note())


async def test_nodes_that_slurm_does_not_know_are_found_out_before_the_job_is_touched(tmp_path: Path) -> None:
    world = SlurmWorld()
    with pytest.raises(Refused, match="Slurm knows no node gpu99"):
        await slurm(world).restart(asked(tmp_path, without=("gpu07", "gpu99")), Note())
    assert world.changes == []
    await slurm(world).restart(asked(tmp_path, without=("gpu08.example.com",)), Note())
    assert world.excluded == "gpu08"


class Broken(SlurmWorld):
    def __init__(self, ran: Ran) -> None:
        super().__init__()
        self.ran = ran

    async def run(self, argv: Any, **more: Any) -> Ran:
        return self.ran if argv[0] == "squeue" else await super().run(argv, **more)


@pytest.mark.parametrize(
    ("ran", "kind", "words"),
    [
        (Ran(1, "slurm_load_jobs error: Invalid job id specified"), Refused, "knows no job 77"),
        (Ran(1, "slurm_load_jobs error: Unable to contact slurm controller"), Later, "Unable to contact"),
        (Ran(0, ""), Refused, "no such job"),
        (Ran(0, "77|77|N/A|ann|RUNNING||None|gpu07||\n"), Refused, "not understood"),
        (Ran(0, "77|77|5|ann|RUNNING|0|None|gpu07||\n"), Refused, "heterogeneous"),
        (Ran(0, "77|77_1|N/A|ann|RUNNING|0|None|g||\n78|77_2|N/A|ann|RUNNING|0|None|g||\n"), Refused, "array"),
    ],
)
async def test_what_slurm_says_otherwise(tmp_path: Path, ran: Ran, kind: type[Exception], words: str) -> None:
    world = Broken(ran)
    with pytest.raises(kind, match=words):
        await slurm(world).restart(asked(tmp_path), Note())
    assert world.changes == []
