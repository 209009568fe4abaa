"""What is done about an event: the allow-list, names that are filled in, and settings that say all their problems."""

import json
from pathlib import Path
from typing import Any

import pytest
from receiver_world import NOW, other, restart, settings

from rankpulse.core.settings import BadSettings
from rankpulse.receiver.deciding import Decision, Denied, Heard, Plan, decide
from rankpulse.receiver.reading import event
from rankpulse.receiver.settings import parse

SLURM = {"run_id": "llama-*", "actuator": "slurm", "users": ["ann"], "target": "77"}
KUBE = {"run_id": "llama-*", "actuator": "kubernetes", "namespace": "train", "target": "{run_id}"}
COMMAND = {"run_id": "llama-*", "actuator": "command", "argv": ["/bin/again", "--run={run_id}", "{round}"]}
UNIT = {"run_id": "llama-*", "actuator": "torchrun", "target": "train@{run_id}.service"}


def said(folder: Path, body: bytes, *jobs: dict[str, Any], now: float = NOW, **change: Any) -> Decision:
    return decide(event(body, json.loads(body)["id"]), settings(folder, *jobs, **change), now)


def test_an_allowed_job_becomes_a_plan_with_its_reason(tmp_path: Path) -> None:
    plan = said(tmp_path, restart(run_id="llama-7"), {**SLURM, "run_id": "other"}, SLURM, KUBE)
    assert isinstance(plan, Plan)
    assert (plan.actuator, plan.target, plan.data.without) == ("slurm", "77", ("gpu07",))
    assert plan.reason == "i0001-0001-restart asks that run llama-7 be started again: gpu07 is dead"
    assert len(plan.mark) == 16


@pytest.mark.parametrize("event_", ["page", "closed", "test"])
def test_other_events_ask_for_nothing(tmp_path: Path, event_: str) -> None:
    found = said(tmp_path, other(event_))
    assert isinstance(found, Heard)
    assert event_ in found.reason


@pytest.mark.parametrize("run_id", ["llama", "xllama-7", "LLAMA-7", "", "llama-7\n", "qwen"])
def test_what_is_not_allowed_is_denied(tmp_path: Path, run_id: str) -> None:
    found = said(tmp_path, restart(run_id=run_id), SLURM)
    assert isinstance(found, Denied)
    assert found.status == 403
    assert found.reason.endswith("is none of `jobs`")


def test_other_clusters_and_unknown_events_are_denied(tmp_path: Path) -> None:
    assert said(tmp_path, restart(run_id="llama-7", cluster="lab"), SLURM) == Denied(
        403, "cluster 'lab' is none of `clusters`"
    )
    body = restart(run_id="llama-7").replace(b"rankpulse.restart", b"rankpulse.reboot")
    body = body.replace(b'"event":"restart"', b'"event":"reboot"')
    assert said(tmp_path, body, SLURM) == Denied(403, "event 'reboot' is not known")


def test_a_decision_that_is_old_is_left_to_a_person(tmp_path: Path) -> None:
    assert isinstance(said(tmp_path, restart(run_id="llama-7"), SLURM, now=NOW + 3600), Plan)
    found = said(tmp_path, restart(run_id="llama-7"), SLURM, now=NOW + 3601)
    assert isinstance(found, Denied)
    assert found.status == 409


HOSTILE = [
    "llama-$(reboot)",
    "llama-;id",
    "llama-a b",
    "llama-../..",
    "llama-`id`",
    "llama-é",
    "llama-\x00",
    "llama-{x}",
]


@pytest.mark.parametrize("job", [KUBE, COMMAND, UNIT], ids=["kubernetes", "command", "torchrun"])
@pytest.mark.parametrize("run_id", HOSTILE)
def test_labels_that_mean_something_to_somebody_are_never_filled_in(
    tmp_path: Path, job: dict[str, Any], run_id: str
) -> None:
    found = said(tmp_path, restart(run_id=run_id), job)
    assert isinstance(found, Denied)
    assert found.status == 403


@pytest.mark.parametrize("run_id", ["-1", "0", "77,78", "77_", "x77", "7" * 11, "--all", "77+1"])
def test_a_slurm_job_is_a_number(tmp_path: Path, run_id: str) -> None:
    assert isinstance(said(tmp_path, restart(run_id=run_id), {**SLURM, "run_id": "*", "target": "{run_id}"}), Denied)


def test_what_the_star_stands_for_can_be_filled_in(tmp_path: Path) -> None:
    found = said(tmp_path, restart(run_id="slurm-77"), {**SLURM, "run_id": "slurm-*", "target": "{*}"})
    assert isinstance(found, Plan)
    assert found.target == "77"
    for run_id in ("slurm-", "slurm-77x", "slurm--1"):
        assert isinstance(
            said(tmp_path, restart(run_id=run_id), {**SLURM, "run_id": "slurm-*", "target": "{*}"}), Denied
        )


@pytest.mark.parametrize("run_id", ["77", "77_3"])
def test_and_may_be_a_task_of_an_array(tmp_path: Path, run_id: str) -> None:
    found = said(tmp_path, restart(run_id=run_id), {**SLURM, "run_id": "*", "target": "{run_id}"})
    assert isinstance(found, Plan)
    assert found.target == run_id


@pytest.mark.parametrize("run_id", ["llama-A", "llama-7.", "llama-7_x", "llama-" + "x" * 80])
def test_a_kubernetes_object_is_a_dns_label(tmp_path: Path, run_id: str) -> None:
    assert isinstance(said(tmp_path, restart(run_id=run_id), KUBE), Denied)


def test_every_problem_is_said_at_once() -> None:
    tree = {
        "listen": "0.0.0.0:9470",
        "clusters": ["a b"],
        "surprise": 1,
        "limits": {"age_s": 1e9, "connections": "many", "at_once": float("nan"), "odd": 1},
        "tls": {"cert_file": ""},
        "slurm": {"mark": "Note"},
        "kubernetes": {"url": "http://api"},
        "command": 7,
        "jobs": [
            {"run_id": "a*b*", "actuator": "ssh"},
            {"run_id": "x", "actuator": "slurm", "users": ["Root!"]},
            {"run_id": "x", "actuator": "slurm"},
            {"run_id": "x", "actuator": "kubernetes", "kind": "Pod"},
            {"run_id": "x", "actuator": "command", "argv": ["sh", "-c", "{what}"]},
            {"run_id": "x", "actuator": "torchrun", "target": "{run_id}.service"},
            {"run_id": "x"},
        ],
    }
    with pytest.raises(BadSettings) as refused:
        parse(tree)
    text = "\n".join(refused.value.problems)
    wanted = [
        "surprise: unknown",
        "secret_file: needed",
        "clusters 'a b'",
        "listen beyond this machine needs tls",
        "limits.age_s",
        "limits.connections",
        "limits.at_once",
        "limits.odd",
        "slurm.mark",
        "kubernetes.url",
        "command: must be a table",
        "jobs[0].run_id",
        "jobs[0].actuator",
        "jobs[1].users Root!",
        "jobs[2].users: name",
        "jobs[3].namespace",
        "jobs[3].kind",
        "jobs[4].argv: the absolute",
        "{what}",
        "jobs[5].target",
        "actuator",
    ]
    assert [one for one in wanted if one not in text] == []


def test_listening_beyond_this_machine_takes_a_certificate(tmp_path: Path) -> None:
    made = settings(tmp_path, listen=":9470", tls={"cert_file": "c", "key_file": "k"})
    assert made.listen == ":9470"
    with pytest.raises(BadSettings, match="go together"):
        settings(tmp_path, tls={"cert_file": "c"})


def test_a_receiver_that_would_refuse_everything_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="name at least one"):
        settings(tmp_path, jobs=[])
