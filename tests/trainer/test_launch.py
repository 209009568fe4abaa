"""Who a process is, from any launcher's environment."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import slot
from rankpulse.trainer import launch

ELASTIC = {
    "TORCHELASTIC_RUN_ID": "night run/7",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "GROUP_RANK": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "3",
    "TORCHELASTIC_MAX_RESTARTS": "5",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SLURM = {
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
}


def ranks(environ: dict[str, str], dist: Any = None) -> tuple[Any, ...]:
    who = launch.identity(environ, dist)
    return tuple(who[key] for key in ("source", "rank", "local_rank", "world_size", "node_rank"))


def test_torchelastic() -> None:
    assert ranks(ELASTIC) == ("torchelastic", 5, 1, 8, 2)
    who = launch.identity(ELASTIC)
    assert (who["run_id"], who["master"], who["elastic"], who["restart_count"]) == (
        "night run/7",
        "10.0.0.1:29500",
        True,
        3,
    )
    assert (who["run_uid"], who["round"]) == ("", -1)


def test_torchelastic_under_slurm_is_torchelastic_and_names_the_job() -> None:
    assert ranks(SLURM | ELASTIC)[0] == "torchelastic"
    assert launch.identity(SLURM | ELASTIC)["slurm"] == "42.0.0"


def test_plain_ranks() -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    assert ranks(environ) == ("env", 1, -1, 2, -1)
    assert launch.identity(environ)["elastic"] is False


def test_a_slurm_step() -> None:
    assert ranks(SLURM) == ("slurm", 3, 1, 8, 1)
    assert launch.identity(SLURM | {"SLURM_RESTART_COUNT": "2"})["slurm"] == "42.0.2"


def test_a_slurm_batch_script_is_one_process_whatever_the_tasks() -> None:
    batch = {key: value for key, value in SLURM.items() if "STEP" not in key}
    assert ranks(batch) == ("single", 0, 0, 1, 0)


def test_one_process() -> None:
    assert ranks({}) == ("single", 0, 0, 1, 0)
    assert launch.identity({})["master"] == ""


def test_the_plug_in_names_the_round() -> None:
    who = launch.identity(ELASTIC | {"RANKPULSE_RUN_UID": "u1", "RANKPULSE_ROUND": "4"})
    assert (who["run_uid"], who["round"]) == ("u1", 4)


@pytest.mark.parametrize("bad", ["", "x", "-1", "1.5", "9" * 5000, "²", "0x1", "2147483648", "\ud800"])
def test_bad_numbers_are_unknown(bad: str) -> None:
    environ = dict.fromkeys((*ELASTIC, "RANKPULSE_ROUND"), bad)
    assert ranks(environ) == ("torchelastic", -1, -1, -1, -1)
    assert launch.identity(environ)["round"] == -1


class Dist:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        if self.error:
            raise self.error
        return 1

    def get_world_size(self) -> int:
        return 2


def test_a_process_group_made_without_any_environment() -> None:
    assert ranks({}, Dist()) == ("torch", 1, -1, 2, -1)
    assert ranks(ELASTIC, Dist())[0] == "torchelastic"


@pytest.mark.parametrize("dist", [object(), Dist(RuntimeError()), 7])
def test_another_torch_than_we_know(dist: object) -> None:
    assert ranks({}, dist)[0] == "single"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"),
        ({"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}, "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"),
        ({"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, "ok"),
        ({"TORCHELASTIC_USE_AGENT_STORE": "False"}, "ok"),
        ({"RANKPULSE_ROUND": "0"}, "ok"),
    ],
)
def test_whether_restarts_can_work(change: dict[str, str], verdict: str) -> None:
    assert (launch.restartable(ELASTIC | change) or "").startswith(verdict)


def test_no_restarts_no_verdict() -> None:
    assert launch.restartable({}) is None
    assert launch.restartable(ELASTIC | {"TORCHELASTIC_MAX_RESTARTS": "0"}) is None


names = st.sampled_from([*ELASTIC, *SLURM, "RANKPULSE_RUN_UID", "RANKPULSE_ROUND"])
texts = st.text(max_size=400) | st.sampled_from(["\udcff" * 300, "☃" * 300, "\x01" * 300, "1"])


@given(st.dictionaries(names, texts), st.dictionaries(st.text(max_size=12), st.text(max_size=300), max_size=4))
def test_any_environment_gives_an_identity_that_fits(environ: dict[str, str], reasons: dict[str, str]) -> None:
    who = {**launch.identity(environ), "server": "/dev/shm/rankpulse/u0/1-00000000.sock", "capabilities": reasons}
    body = launch.fitted(who)
    assert len(body) <= slot.IDENTITY_MAX
    data = bytearray(slot.image({}, slot.Pulse(0, 0, 0, 0.0, "train", 1)))
    data[slot.IDENTITY_AT : slot.IDENTITY_AT + len(body)] = body
    read = slot.read(lambda: bytes(data)).identity
    assert read.keys() == who.keys()
    assert len(read["run_id"].encode()) <= launch.LABEL_BYTES
    assert read["rank"] == who["rank"]


def test_a_long_run_id_is_cut_at_a_character() -> None:
    who = launch.identity({"TORCHELASTIC_RUN_ID": "a" * 255 + "é"})
    assert who["run_id"].startswith("a" * 255)
    assert len(who["run_id"].encode()) <= 256
