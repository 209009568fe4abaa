"""`rankpulse explain` with what the evidence came to: pages as they are printed, and what no page may do."""

import json
from typing import Any

import explain_pages as pages
import msgspec
import pytest

from rankpulse.cli import advice, explain
from rankpulse.core import diagnosis
from rankpulse.core.records import Finding, Incident, Member, Missing
from rankpulse.core.snapshot import Rank
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
    also = dict(explain._sections(dead, found))["also"]
    assert "what ranks were doing said collective_hang" in "\n".join(also)


def test_every_class_that_a_verdict_or_an_incident_can_have_has_its_advice() -> None:
    of_incidents = {diagnosis.AGENT_CUT_OFF, diagnosis.OPERATOR_RESTART, diagnosis.DRAIN, diagnosis.BREAKER_OPEN}
    assert {*KINDS, *of_incidents} <= advice.ADVICE.keys()


@pytest.mark.parametrize("klass", KINDS)
def test_advice_names_what_it_is_about(klass: str) -> None:
    told = Incident(
        id="i", klass=klass, state="open", opened_at=0.0, run_uid="run-7", nodes=("n[1]",), action="page",
        culprits=(Member(1, "n[1]", 0, 4242, 1),),
    )  # fmt: skip
    text = advice.next_step(told)
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
    assert tree["what_to_do"][0] == advice.next_step(told)
    assert explain.as_json(*pages.death())["finding"] is None
