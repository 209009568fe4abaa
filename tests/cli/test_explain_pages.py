"""`rankpulse explain` with what the evidence came to: pages as they are printed, and what no page may do."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import explain_pages as pages
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.cli import explain
from rankpulse.core import causes_hang, diagnosis, todo
from rankpulse.core.incident_sections import sections
from rankpulse.core.records import Before, Counts, DumpRow, Finding, Incident, Member, Missing
from rankpulse.core.snapshot import Loaders, Operation, Position, Rank
from rankpulse.core.verdict import KINDS


@pytest.mark.parametrize("name", pages.STORIES)
def test_the_page_is_the_one_that_was_read_by_a_person(name: str) -> None:
    """Where a page should change: `python tests/explain_pages.py`, then read what has become of it."""
    assert pages.printed(name) == pages.kept(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", pages.STORIES)
def test_no_page_is_a_wall(name: str) -> None:
    lines = pages.printed(name).splitlines()
    assert len(lines) < 80
    assert max(map(len, lines)) < 400


def test_the_first_line_says_who_where_and_what_it_was_doing() -> None:
    first = explain.headline(*pages.lock())
    for part in ("rank 7 on gpu00", "GPU 7", "pid 4711", "metrics.py:88 publish", "state S", "futex_wait_queue"):
        assert part in first


def test_an_incident_that_was_corrected_since_keeps_its_own_headline() -> None:
    told, found = pages.lock()
    dead = msgspec.structs.replace(told, klass="worker_dead", summary="rank 3 on gpu00 (pid 1) was killed by SIGKILL")
    assert explain.headline(dead, found) == dead.summary
    also = dict(sections(dead, found))["also"]
    assert "what ranks were doing said collective_hang" in "\n".join(also)


def test_every_class_that_a_verdict_or_an_incident_can_have_has_its_advice() -> None:
    of_incidents = {diagnosis.AGENT_CUT_OFF, diagnosis.OPERATOR_RESTART, diagnosis.DRAIN, diagnosis.BREAKER_OPEN}
    of_incidents.add(diagnosis.NON_FINITE)
    assert {*KINDS, *of_incidents} <= todo.ADVICE.keys()


@pytest.mark.parametrize("signature", todo.CLOSER)
def test_advice_fits_what_the_culprit_does(signature: str) -> None:
    told = Incident(
        id="i", klass=signature.partition(":")[0], state="open", opened_at=0.0, run_uid="run-7", nodes=("n1",),
        action="page", culprits=(Member(1, "n1", 0, 4242, 1),), signature=signature,
    )  # fmt: skip
    text = todo.next_step(told)
    assert text != todo.next_step(msgspec.structs.replace(told, signature=""))
    assert "{" not in text
    assert told.klass in KINDS


def test_closer_advice_is_about_what_a_diagnosis_can_say() -> None:
    told = "".join((Path(causes_hang.__file__)).read_text(encoding="utf-8"))
    assert [name for name in todo.CLOSER if f'"{name.partition(":")[2]}"' not in told] == []


@pytest.mark.parametrize("klass", KINDS)
def test_advice_names_what_it_is_about(klass: str) -> None:
    told = Incident(
        id="i", klass=klass, state="open", opened_at=0.0, run_uid="run-7", nodes=("n[1]",), action="page",
        culprits=(Member(1, "n[1]", 0, 4242, 1),),
    )  # fmt: skip
    text = todo.next_step(told)
    assert text.isprintable()
    assert "{" not in text


def test_names_and_texts_from_elsewhere_steer_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J[bold]x[/bold]\u202e"
    told, found = pages.lock()
    row = Rank(7, evil, 7, 4711, wchan=evil, state=evil, phase=evil, stack=(evil, f"{evil} acquire"), dump=evil)
    told = msgspec.structs.replace(told, summary=evil, nodes=(evil,), reasons=(evil,), action_reason=evil)
    found = msgspec.structs.replace(
        found, summary=f"rank 7 {evil}", kind=evil, culprits=(row,), waits=(evil,), machines=(evil,), stacks=(evil,),
        also=(evil,), hints=(evil,), missing=(Missing(1, evil, evil),), asked=(evil,), answered=(),
    )  # fmt: skip
    explain.page(told, found)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]x[/bold]" in text


def test_the_json_is_the_incident_with_its_finding() -> None:
    told, found = pages.huge()
    tree: dict[str, Any] = json.loads(json.dumps(explain.as_json(told, found)))
    assert (tree["id"], tree["klass"]) == (told.id, told.klass)
    assert msgspec.convert(tree["finding"], Finding) == found
    assert tree["what_to_do"][0] == todo.next_step(told)
    assert explain.as_json(*pages.death())["finding"] is None


texts = st.text(max_size=20)
numbers = st.none() | st.integers(-(2**40), 2**40)
truths = st.none() | st.booleans()
operations = st.builds(Operation, seq=st.integers(-1, 99), op=texts, peer=numbers, state=texts, site=texts)
ranks = st.builds(
    Rank,
    rank=st.integers(0, 2**20),
    node=texts,
    gpu=numbers,
    pid=numbers,
    step=numbers,
    phase=texts,
    state=texts | st.sampled_from("RSDTtZX"),
    wchan=texts,
    stack=st.lists(texts, max_size=40).map(tuple),
    cpu_moving=truths,
    io_moving=truths,
    gil_held=truths,
    alive=truths,
    exit_code=numbers,
    error=texts,
    gpu_util=st.none() | st.floats(),
    loaders=st.none() | st.builds(Loaders, alive=numbers, dead=numbers, busy=truths, state=texts),
    unacked=st.lists(texts, max_size=6).map(tuple),
    positions=st.lists(
        st.builds(
            Position, group=texts, enqueued=numbers, started=numbers, completed=numbers,
            open=st.lists(operations, max_size=3).map(tuple),
        ),
        max_size=6,
    ).map(tuple),
)  # fmt: skip
lines = st.lists(texts, max_size=20).map(tuple)
findings = st.builds(
    Finding,
    id=texts,
    at=st.floats(),
    klass=st.sampled_from([*KINDS, "x"]),
    kind=texts,
    summary=texts,
    hints=lines,
    waits=lines,
    machines=lines,
    stacks=lines,
    also=lines,
    culprits=st.lists(ranks, max_size=3).map(tuple),
    outliers=st.lists(ranks, max_size=3).map(tuple),
    dumps=st.lists(st.builds(DumpRow, texts, st.integers(-1, 9), texts, st.integers(0, 2**40)), max_size=4).map(tuple),
    missing=st.lists(st.builds(Missing, st.integers(0, 99), texts, texts), max_size=9).map(tuple),
    asked=lines,
    answered=lines,
    counts=st.builds(Counts, *(st.integers(0, 2**31) for _ in range(4))),
    seen=st.builds(Before, st.integers(0, 99), lines, texts),
)


@given(found=findings, klass=st.sampled_from([*KINDS, "x"]))
def test_whatever_a_finding_holds_there_is_a_page(found: Finding, klass: str) -> None:
    members = tuple(Member(row.rank, row.node, 0, 1, 1) for row in found.culprits)
    told = Incident(id="i", klass=klass, state="open", opened_at=0.0, culprits=members, action="page")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        explain.page(told, found)
    assert all(char.isprintable() for line in text.getvalue().split("\n") for char in line)
    json.dumps(explain.as_json(told, found))
