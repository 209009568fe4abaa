"""The commands against a real etcd and a real monitor."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import eventually_sync
from typer.testing import CliRunner

from rankpulse.cli.main import app
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import (
    Arm,
    Beat,
    Breaker,
    Cordon,
    Incident,
    Launcher,
    Member,
    Record,
    Roster,
    RunMode,
    RunState,
    seated,
)
from rankpulse.core.settings import StoreSettings
from rankpulse.store.embedded import free_ports
from rankpulse.store.etcd import open_store

pytestmark = pytest.mark.live


class Cluster:
    """One cluster in the store, and the command pointed at it."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.endpoint, self.keys = endpoint, Keys(name)
        self.environ = {"RANKPULSE_STORE": endpoint, "RANKPULSE_CLUSTER": name}

    def run(self, *args: str, code: int = 0) -> str:
        """What the command printed on stdout, or on stderr when it should fail with `code`."""
        result = CliRunner().invoke(app, list(args), env=self.environ)
        assert result.exit_code == code, (result.stdout, result.stderr)
        return result.stderr if code else result.stdout

    def put(self, *records: tuple[str, Record]) -> None:
        async def work() -> None:
            store = await open_store(StoreSettings(endpoints=(self.endpoint,)))
            for key, record in records:
                await store.put(key, codec.encode(record))
            await store.close()

        asyncio.run(work())

    def held(self, key: str) -> bytes | None:
        async def work() -> bytes | None:
            store = await open_store(StoreSettings(endpoints=(self.endpoint,)))
            item = await store.get(key)
            await store.close()
            return item.value if item else None

        return asyncio.run(work())

    def seed_run(self, uid: str, label: str, outcome: str = "running") -> None:
        """A launch of one rank, as a monitor would have written it."""
        roster = Roster(
            run_uid=uid,
            run_id=label,
            round=1,
            meeting="m" + uid,
            world_size=1,
            elastic=True,
            at=time.time(),
            seats=seated([Member(0, "n1", 0, 100, 1)]),
            launchers=(Launcher("n1", "99.1" + uid),),
        )
        state = RunState(run_uid=uid, run_id=label, round=1, outcome=outcome, reason="", at=time.time())
        self.put((self.keys.roster(uid, 1), roster), (self.keys.run_state(uid), state))

    def seed_incident(self, id_: str, at: float, state: str = "closed") -> None:
        self.put(
            (self.keys.incident(id_), Incident(id=id_, klass="worker_dead", state=state, opened_at=at, summary="seed"))
        )


@pytest.fixture
def here(etcd: str, cluster: str) -> Cluster:
    return Cluster(etcd, cluster)


@pytest.fixture
def monitor(here: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "rankpulse.cli.main", "monitor", "--listen", "127.0.0.1:0", "--preset", "drill"],
        env={**os.environ, **here.environ},
        cwd="/",
        stderr=subprocess.DEVNULL,
    )
    eventually_sync(lambda: here.held(here.keys.leader()), 20, "a leader")
    yield process
    process.terminate()
    process.wait(timeout=20)


def test_an_empty_cluster_is_told_what_to_start(here: Cluster) -> None:
    text = here.run("status")
    for part in ("none leads", "rankpulse monitor", "rankpulse agent", "not armed"):
        assert part in text
    assert "no incidents" in here.run("incidents")
    assert "no incident is recorded" in here.run("explain", "last", code=2)
    assert "no run is going on" in here.run("restart", "x", "--reason", "y", code=2)


def test_status_joins_the_store_with_the_monitors_own_page(here: Cluster, monitor: object) -> None:
    here.put((here.keys.beat("n1"), Beat(node="n1", inc=1, seq=1, at=time.time())))
    here.put((here.keys.beat("n2"), Beat(node="not n2", inc=1, seq=1, at=time.time())))
    eventually_sync(
        lambda: json.loads(here.run("status", "--json"))["nodes"][0]["silence_s"] is not None, 20, "live figures"
    )
    shown = json.loads(here.run("status", "--json"))
    assert shown["leader"]["epoch"] == shown["monitor"]["epoch"] == 1
    assert list(shown["refused"]) == [here.keys.beat("n2")]
    assert "n1" in here.run("status")


def test_incidents_are_found_by_id_by_its_beginning_and_as_the_last(here: Cluster) -> None:
    now = time.time()
    here.seed_incident("i-aa1", now - 90_000)
    here.seed_incident("i-ab2", now - 60)
    here.seed_incident("i-old-open", now - 90_000, state="open")
    assert [i["id"] for i in json.loads(here.run("incidents", "--json"))] == ["i-old-open", "i-ab2"]
    assert [i["id"] for i in json.loads(here.run("incidents", "--json", "--all"))] == ["i-aa1", "i-old-open", "i-ab2"]
    assert json.loads(here.run("explain", "last", "--json"))["id"] == "i-ab2"
    assert json.loads(here.run("explain", "i-aa", "--json"))["id"] == "i-aa1"
    assert "i-aa1, i-ab2" in here.run("explain", "i-a", code=2)
    assert "rankpulse incidents --all" in here.run("explain", "nothing", code=2)
    assert "seed" in here.run("explain", "i-ab2")


def test_arming_and_disarming_are_written_with_author_and_reason(here: Cluster) -> None:
    here.environ["USER"] = "ada"
    assert "armed" in here.run("arm", "--reason", "watched  it\nfor a week")
    assert "armed by ada" in here.run("status")
    here.run("disarm", "-r", "maintenance")
    record = codec.decode(Arm, here.held(here.keys.arm()) or b"")
    assert (record.armed, record.author, record.reason) == (False, "ada", "maintenance")


def test_top_reads_what_a_real_monitor_answers(here: Cluster, monitor: object) -> None:
    here.seed_run("u1", "llama")
    here.run("cordon", "gpu07", "--reason", "ECC errors")
    shown = ""

    def known() -> bool:
        nonlocal shown
        shown = here.run("top", "--once")
        return "llama" in shown and "gpu07" in shown

    eventually_sync(known, 20, "the run and the node on the screen")
    for part in ("leads, epoch 1, observes only, not armed", "1 cordoned; 1 run", "cordoned by", "ECC errors"):
        assert part in shown, shown


def test_a_node_is_cordoned_shown_and_let_in_again(here: Cluster, monitor: object) -> None:
    text = here.run("cordon", "gpu07", "--reason", "ECC errors")
    assert "takes part in no further round" in text
    assert "No agent of the name gpu07" in text
    assert "ECC errors" in here.run("status")
    assert json.loads(here.run("status", "--json"))["cordons"][0]["node"] == "gpu07"
    assert "is cordoned already, by" in here.run("cordon", "gpu07", "--reason", "again", code=2)
    assert "may take part in rounds again" in here.run("uncordon", "gpu07", "--reason", "memory replaced")
    assert here.held(here.keys.cordon("gpu07")) is None
    assert "is not cordoned" in here.run("uncordon", "gpu07", "--reason", "again", code=2)
    assert "node 'no/such'" in here.run("cordon", "no/such", "--reason", "x", code=2)


def test_a_restart_is_asked_for_and_answered_with_one_order(here: Cluster, monitor: object) -> None:
    here.seed_run("llama-1", "llama")
    eventually_sync(lambda: json.loads(here.run("status", "--json"))["monitor"]["runs"], 20, "the monitor to know it")
    assert "is taken up" in here.run("restart", "llama", "--reason", "disk of rank 0 is dead")
    eventually_sync(lambda: here.held(here.keys.order("llama-1", 1, "restart")), 20, "the order")
    assert json.loads(here.run("explain", "last", "--json"))["klass"] == "operator_restart"
    assert "refused" in here.run("restart", "llama", "--reason", "again", code=2)


def test_a_run_is_named_well_or_the_choice_is_listed(here: Cluster) -> None:
    here.seed_run("llama-1", "llama")
    here.seed_run("llama-2", "llama")
    here.seed_run("gone-1", "gone", outcome="finished")
    text = here.run("restart", "llama", "--reason", "x", code=2)
    assert "llama-1" in text
    assert "llama-2" in text
    assert "has ended" in here.run("restart", "gone-1", "--reason", "x", code=2)
    assert "nobody would answer" in here.run("restart", "llama-2", "--reason", "x", code=2)


def children(pid: int) -> list[int]:
    """Of all its threads: the kernel lists them by the thread that made them."""
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_up_brings_all_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    config = tmp_path / "up.toml"
    port = free_ports(1)[0]
    config.write_text(
        f'[store]\nendpoints = ["127.0.0.1:{port}"]\n'
        '[agent]\nlisten = ""\nnode = "box"\n[monitor]\nlisten = "127.0.0.1:0"\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "rankpulse.cli.main", "up", "-c", str(config), "--run-dir", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        store = next(
            line.split("RANKPULSE_STORE=")[1].split()[0] for line in process.stdout if "RANKPULSE_STORE=" in line
        )
        assert store == f"127.0.0.1:{port}"  # where commands with this configuration look
        here = Cluster(store, "default")
        eventually_sync(lambda: here.held(here.keys.beat("box")), 30, "the agent's beat")
        eventually_sync(lambda: here.held(here.keys.leader()), 30, "a leader")
        parts = children(process.pid)
        assert len(parts) >= 3
        process.send_signal(number)
        assert process.wait(timeout=30) == (0 if number == signal.SIGINT else -signal.SIGKILL)
        eventually_sync(lambda: all(gone(pid) for pid in parts), 20, "all parts to be gone")
    finally:
        process.kill()
        process.communicate()


def test_what_a_run_says_of_numbers_that_are_not_finite_stays_until_it_says_otherwise(here: Cluster) -> None:
    here.seed_run("llama-77", "llama")

    def consent() -> bool | None:
        held = here.held(here.keys.run_mode("llama-77"))
        assert held is not None
        return codec.decode(RunMode, held).restart_on_non_finite

    here.run("arm", "--run", "llama", "--reason", "try it")
    assert consent() is None
    answer = here.run("arm", "--run", "llama", "--restart-on-non-finite", "--reason", "it may")
    assert "armed, also because of numbers that are not finite" in answer
    for words in (["pause", "llama"], ["resume", "llama"], ["disarm", "--run", "llama"], ["arm", "--run", "llama"]):
        here.run(*words, "--reason", "something else")
        assert consent() is True
    assert "also because of numbers" in here.run("status")
    here.run("arm", "--run", "llama", "--no-restart-on-non-finite", "--reason", "not any more")
    assert consent() is False
    assert "needs --run" in here.run("arm", "--restart-on-non-finite", "--reason", "all", code=2)
    answer = here.run("arm", "--run", "llama", "--restart-on-corruption", "--reason", "it may")
    assert "also because its replicas differ" in answer
    assert consent() is False, "what was said of the other stays"
    assert "also because its replicas differ" in here.run("status")


def test_a_run_is_armed_paused_and_resumed_alone(here: Cluster) -> None:
    here.environ["USER"] = "ada"
    here.seed_run("llama-77", "llama")

    def mode() -> RunMode | None:
        held = here.held(here.keys.run_mode("llama-77"))
        return codec.decode(RunMode, held) if held is not None else None

    assert "run llama-77 is armed" in here.run("arm", "--run", "llama", "--reason", "try it on this one")
    assert "run llama-77 is paused" in here.run("pause", "llama", "--reason", "debugger")
    found = mode()
    assert found is not None
    assert (found.mode, found.then, found.author, found.reason) == ("paused", "armed", "ada", "debugger")
    assert "paused already, by ada: debugger" in here.run("pause", "llama", "--reason", "again", code=2)
    assert "llama-77, by ada" in here.run("status")
    assert json.loads(here.run("status", "--json"))["modes"][0]["mode"] == "paused"
    assert "is resumed: armed" in here.run("resume", "llama", "--reason", "done")
    assert "is not paused" in here.run("resume", "llama", "--reason", "again", code=2)
    assert "NOT IN FORCE" not in here.run("status")
    here.run("disarm", "--reason", "the brake for everything")
    assert "NOT IN FORCE: the cluster was disarmed after that" in here.run("status")
    assert "disarmed by ada" in here.run("status")
    here.run("arm", "--run", "llama", "--reason", "again")
    assert "NOT IN FORCE" not in here.run("status")
    assert "only observed" in here.run("disarm", "--run", "llama", "--reason", "enough")
    found = mode()
    assert found is not None
    assert found.mode == "observe"
    here.seed_run("bert-1", "bert")
    here.run("pause", "bert", "--reason", "debugger")
    assert "as the cluster is" in here.run("resume", "bert", "--reason", "done")
    assert here.held(here.keys.run_mode("bert-1")) is None


def test_a_name_that_is_the_beginning_of_another_is_not_taken_for_it(here: Cluster, monitor: object) -> None:
    here.seed_run("llama-1", "llama")
    here.seed_run("llama-10", "other")
    here.run("pause", "llama-10", "--reason", "debugger")
    assert "run llama-1 is paused" in here.run("pause", "llama-1", "--reason", "likewise")
    here.run("resume", "llama-1", "--reason", "done")
    assert "run llama-1 is not paused" in here.run("resume", "llama-1", "--reason", "done", code=2)
    assert here.held(here.keys.run_mode("llama-10")) is not None
    here.put((here.keys.cordon("gpu10"), Cordon(node="gpu10", author="m", reason="x", at=1.0, owner="rankpulse")))
    assert "takes part in no further round" in here.run("cordon", "gpu1", "--reason", "ECC errors")
    assert "is cordoned already, by" in here.run("cordon", "gpu1", "--reason", "again", code=2)


def test_resuming_does_not_bring_back_what_a_later_disarm_took(here: Cluster) -> None:
    """Whoever disarms the cluster stops everything: neither way round does a pause undo that."""
    here.seed_run("llama-1", "llama")
    here.run("arm", "--run", "llama", "--reason", "try it")
    here.run("disarm", "--reason", "stop")
    here.run("pause", "llama", "--reason", "debugger")
    assert "as the cluster is" in here.run("resume", "llama", "--reason", "done")
    assert here.held(here.keys.run_mode("llama-1")) is None
    here.run("arm", "--run", "llama", "--reason", "try it")
    here.run("pause", "llama", "--reason", "debugger")
    here.run("disarm", "--reason", "stop")
    assert "as the cluster is" in here.run("resume", "llama", "--reason", "done")
    assert here.held(here.keys.run_mode("llama-1")) is None


def test_a_run_that_is_paused_is_resumed_before_it_is_armed_or_restarted(here: Cluster, monitor: object) -> None:
    here.environ["USER"] = "ada"
    here.seed_run("llama-1", "llama")
    here.run("pause", "llama", "--reason", "debugger")
    for command in (["arm", "--run"], ["disarm", "--run"], ["restart"]):
        said = here.run(*command, "llama", "--reason", "x", code=2)
        assert "run llama-1 is paused, by ada: debugger" in said
        assert "rankpulse resume llama-1" in said
    here.run("resume", "llama", "--reason", "done")
    here.put((here.keys.breaker(), Breaker(open=True, author="m", reason="half of them", at=time.time())))
    said = here.run("restart", "llama", "--reason", "x", code=2)
    assert "the breaker is open: half of them" in said
    assert "rankpulse breaker close" in said


def test_what_keeps_a_node_out_still_is_said(here: Cluster, monitor: object) -> None:
    here.environ["USER"] = "ada"
    here.run("cordon", "gpu07", "--reason", "ECC errors")
    here.run("maintenance", "gpu07", "--reason", "new memory")
    said = here.run("maintenance", "gpu07", "--over", "--reason", "done")
    assert "gpu07 is out of maintenance; it is cordoned still, by ada: ECC errors" in said
    here.run("maintenance", "gpu07", "--reason", "once more")
    said = here.run("uncordon", "gpu07", "--reason", "replaced")
    assert "gpu07 is cordoned no more; it is in maintenance still, by ada: once more" in said
    assert "may take part in rounds again" in here.run("maintenance", "gpu07", "--over", "--reason", "done")


def test_maintenance_drains_and_the_breaker_are_asked_for_and_shown(here: Cluster, monitor: object) -> None:
    assert "its silence is nobody's fault" in here.run("maintenance", "gpu07", "--reason", "new disk")
    assert "in maintenance already" in here.run("maintenance", "gpu07", "--reason", "again", code=2)
    drained = here.run("cordon", "gpu08", "--drain", "--for", "7200", "--reason", "fan")
    assert "no further round for 2 h; jobs on it leave it after their next checkpoint" in drained
    page = here.run("status")
    for part in ("maintenance  gpu07 by", "jobs leave it after their next checkpoint", "until 2"):
        assert part in page
    assert "may take part" in here.run("maintenance", "gpu07", "--over", "--reason", "done")
    assert "is not in maintenance" in here.run("maintenance", "gpu07", "--over", "--reason", "done", code=2)
    assert "the breaker is closed" in here.run("breaker", "show")
    assert "nothing to do" in here.run("breaker", "close", "--reason", "x", code=2)
    here.put((here.keys.breaker(), Breaker(open=True, author="monitor", reason="half of them", at=time.time())))
    assert CliRunner().invoke(app, ["breaker", "show"], env=here.environ).exit_code == 1
    assert "OPEN since" in here.run("status")
    eventually_sync(lambda: "breaker_open" in here.run("incidents"), 20, "its incident")
    assert "acts again" in here.run("breaker", "close", "--reason", "the switch is back")
    record = codec.decode(Breaker, here.held(here.keys.breaker()) or b"")
    assert (record.open, record.reason) == (False, "the switch is back")
