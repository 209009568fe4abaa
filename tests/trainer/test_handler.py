"""The rendezvous handler in this process, over an agent that does as the test says."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakeagent import FakeAgent, Session, World
from support import eventually_sync

pytest.importorskip("torch")
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous import api

from rankpulse.trainer import handler, rdzvconf, stores
from rankpulse.trainer.agentline import AgentLine


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    before = dict(os.environ)
    for name in (*handler.EVIDENCE, "RANKPULSE_DIR", handler.BEFORE_STEP, handler.BEFORE_ROUND):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def agent(tmp_path: Path, world: World) -> Iterator[FakeAgent]:
    made = FakeAgent(tmp_path / "node", world).start()
    yield made
    made.stop()


Make = Callable[..., handler.Handler]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    lines = []

    def made(nodes: int = 1, conf: rdzvconf.Conf | None = None, reach_s: float = 5.0) -> handler.Handler:
        line = AgentLine(str(tmp_path / "node" / "agent.sock"), {"op": "rendezvous", "v": 1})
        lines.append(line)
        conf = conf or rdzvconf.Conf(agent_wait_s=10.0)
        return handler.Handler("label", (nodes, nodes), conf, "127.0.0.1", line, reach_s=reach_s)

    yield made
    for line in lines:
        line.close()


def test_a_round(make: Make, agent: FakeAgent, world: World) -> None:
    mine = make()
    info = mine.next_rendezvous()
    assert (info.rank, info.world_size) == (0, 1)
    (join,) = world.heard("join")
    assert join == {
        "label": "label", "min_nodes": 1, "max_nodes": 1, "join": 1, "run_uid": "", "after": 0,
        "address": "127.0.0.1", "port": join["port"], "last_call_s": 30.0, "timeout_s": 600.0,
    }  # fmt: skip
    assert info.bootstrap_store_info == api.RendezvousStoreInfo("127.0.0.1", join["port"])
    info.store.set("x", "y")
    assert info.store.get("x") == b"y"
    assert (os.environ["RANKPULSE_RUN_UID"], os.environ["RANKPULSE_ROUND"]) == ("demo-1", "1")
    assert os.environ["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert (mine.get_backend(), mine.get_run_id(), mine.use_agent_store) == ("rankpulse", "label", True)
    assert not mine.is_closed()


def test_what_the_user_set_for_evidence_stays(make: Make, agent: FakeAgent) -> None:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "7"
    make().next_rendezvous()
    assert os.environ["TORCH_FR_BUFFER_SIZE"] == "7"


def test_the_next_round_has_a_store_of_its_own(make: Make, agent: FakeAgent, world: World) -> None:
    mine = make()
    first = mine.next_rendezvous()
    first.store.set("x", "y")
    second = mine.next_rendezvous()
    assert not second.store.check(["x"])
    joins = world.heard("join")
    assert [(join["join"], join["after"], join["run_uid"]) for join in joins] == [(1, 0, ""), (2, 1, "demo-1")]
    assert joins[0]["port"] != joins[1]["port"]
    assert os.environ["RANKPULSE_ROUND"] == "2"


def limits() -> tuple[str | None, str | None]:
    return os.environ.get(handler.BEFORE_STEP), os.environ.get(handler.BEFORE_ROUND)


def answer(world: World, *befores: dict[str, int]) -> None:
    """The next joins are met with these limits, one each; after them without."""
    left = list(befores)

    def met(session: Session, join: dict[str, Any]) -> bool:
        world.round += 1
        place = {"rank": 0, "nodes": 1, "address": join["address"], "port": join["port"]}
        session.send(met={"run_uid": "demo-1", "round": world.round, **place, **(left.pop(0) if left else {})})
        return True

    world.on_join = met


def test_a_limit_for_what_is_resumed_from_is_handed_on_and_ends_with_its_round(
    make: Make, agent: FakeAgent, world: World
) -> None:
    answer(world, {}, {"resume_before_step": 50, "resume_before_round": 1})
    mine = make()
    seen = []
    for _ in range(3):
        mine.next_rendezvous()
        seen.append(limits())
    assert seen == [(None, None), ("50", "1"), (None, None)]


def test_a_limit_that_torchrun_was_started_with_speaks_of_what_lay_there_before(
    make: Make, agent: FakeAgent, world: World
) -> None:
    os.environ[handler.BEFORE_STEP] = "70"
    answer(world, {}, {"resume_before_step": 50, "resume_before_round": 1})
    mine = make()
    seen = []
    for _ in range(3):
        mine.next_rendezvous()
        seen.append(limits())
    assert seen == [("70", "0"), ("50", "1"), ("70", "0")]


def test_a_limit_of_the_round_around_us_is_not_ours(make: Make, agent: FakeAgent) -> None:
    os.environ.update({handler.BEFORE_STEP: "70", handler.BEFORE_ROUND: "3"})
    make().next_rendezvous()
    assert limits() == (None, None)


@pytest.mark.parametrize("bad", ["50", 1.5, True, None])
def test_a_limit_that_is_no_number_is_no_answer(make: Make, agent: FakeAgent, world: World, bad: Any) -> None:
    answer(world, {"resume_before_step": bad})
    with pytest.raises(api.RendezvousStateError, match="run the same version in both"):
        make().next_rendezvous()


def test_rounds_leave_no_descriptor_and_no_thread(make: Make, agent: FakeAgent) -> None:
    mine = make()

    def counts() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    info = mine.next_rendezvous()
    before = counts()
    for _ in range(10):
        info = mine.next_rendezvous()
    assert info.rank == 0
    eventually_sync(lambda: counts() <= before, 5, "no more descriptors and threads than before")


def test_an_order_is_answered_before_it_is_obeyed(make: Make, agent: FakeAgent, world: World) -> None:
    mine = make()
    mine.next_rendezvous()
    assert mine.num_nodes_waiting() == 0
    world.again(round_=7)
    world.torchruns()[0].send(again={"round": 0, "waiting": 3, "reason": "an old one"})
    world.torchruns()[0].send(wait="something else")
    assert all(mine.num_nodes_waiting() == 0 for _ in range(20))
    world.torchruns()[0].send(again={"round": 1, "waiting": 3, "reason": "rank 2 hangs"})
    assert eventually_sync(mine.num_nodes_waiting, 10, "the order") == 3
    eventually_sync(lambda: world.heard("restarting"), 10, "the acknowledgement")
    assert mine.num_nodes_waiting() == 3
    assert world.heard("restarting") == [{"round": 1}], "said once"
    mine.next_rendezvous()
    assert mine.num_nodes_waiting() == 0


@pytest.mark.parametrize("bad", [7, None, [], {}, {"round": "1"}, {"round": 1.5}])
def test_orders_that_are_none(make: Make, agent: FakeAgent, world: World, bad: Any) -> None:
    mine = make()
    mine.next_rendezvous()
    world.torchruns()[0].send(again=bad)
    world.torchruns()[0].send(again={"round": 1, "waiting": "many"})
    assert eventually_sync(mine.num_nodes_waiting, 10, "the good one") == 1


def test_a_signal_that_ends_torchrun_is_not_swallowed(agent: FakeAgent, tmp_path: Path) -> None:
    """torchrun's handler raises wherever Python is when SIGTERM comes, also in here; its exception is an Exception."""
    came: list[int] = []

    def clock() -> float:
        if came:
            raise SignalException("SIGTERM", signal.Signals(came.pop()))
        return time.monotonic()

    line = AgentLine(str(tmp_path / "node" / "agent.sock"), {"op": "rendezvous", "v": 1}, clock)
    mine = handler.Handler("label", (1, 1), rdzvconf.Conf(agent_wait_s=10.0), "127.0.0.1", line)
    mine.next_rendezvous()
    came.append(signal.SIGTERM)
    with pytest.raises(SignalException):
        mine.num_nodes_waiting()
    assert mine.num_nodes_waiting() == 0, "and the conversation goes on"
    came.append(signal.SIGTERM)
    with pytest.raises(SignalException):
        mine.next_rendezvous()
    line.close()


def test_an_agent_that_goes_and_comes_back_is_not_noticed_by_the_round(
    make: Make, agent: FakeAgent, world: World
) -> None:
    mine = make()
    mine.next_rendezvous()
    agent.stop()
    assert all(mine.num_nodes_waiting() == 0 for _ in range(50))
    agent.start()
    eventually_sync(lambda: mine.num_nodes_waiting() or world.heard("watch"), 10, "the watch")
    assert world.heard("watch") == [{"run_uid": "demo-1", "round": 1, "join": 1}]
    world.torchruns()[-1].send(again={"round": 1, "waiting": 1, "reason": "ordered meanwhile"})
    assert eventually_sync(mine.num_nodes_waiting, 10, "the order") == 1


def test_an_order_stays_when_the_agent_goes(make: Make, agent: FakeAgent, world: World) -> None:
    mine = make()
    mine.next_rendezvous()
    world.again()
    eventually_sync(mine.num_nodes_waiting, 10, "the order")
    agent.stop()
    assert mine.num_nodes_waiting() == 1


def test_garbage_from_the_agent_never_raises(make: Make, agent: FakeAgent, world: World) -> None:
    mine = make()
    mine.next_rendezvous()
    for bad in (b"\n", b"{\n", b"\xff" * 100 + b"\n", b'{"again":' + b"[" * 5000 + b"\n"):
        world.torchruns()[-1].connection.sendall(bad)
        seen = len(world.heard("watch"))
        eventually_sync(
            lambda seen=seen: mine.num_nodes_waiting() or len(world.heard("watch")) > seen, 10, "another session"
        )
        assert mine.num_nodes_waiting() == 0


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("closed", api.RendezvousClosedError),
        ("finished", api.RendezvousGracefulExitError),
        ("timeout", api.RendezvousTimeoutError),
        ("cordoned", api.RendezvousError),
        ("mismatch", api.RendezvousStateError),
        ("corrupt", api.RendezvousStateError),
        ("of tomorrow", api.RendezvousError),
    ],
)
def test_refusals(
    make: Make, agent: FakeAgent, world: World, capfd: pytest.CaptureFixture[str], kind: str, error: type[Exception]
) -> None:
    def refuse(session: Session, _join: Any) -> bool:
        session.send(refused={"kind": kind, "reason": "because of gpu07"})
        return True

    world.on_join = refuse
    mine = make()
    with pytest.raises(error, match="because of gpu07") as caught:
        mine.next_rendezvous()
    assert caught.type is error
    assert "because of gpu07" in capfd.readouterr().err
    assert mine.is_closed() == (kind in ("closed", "finished"))


@pytest.mark.parametrize(
    "bad", [7, {}, {"run_uid": "x", "round": "1", "rank": 0, "nodes": 1, "address": "", "port": 1}]
)
def test_an_agent_of_another_version(make: Make, agent: FakeAgent, world: World, bad: Any) -> None:
    def answer(session: Session, _join: Any) -> bool:
        session.send(met=bad)
        return True

    world.on_join = answer
    with pytest.raises(api.RendezvousStateError, match="same version"):
        make().next_rendezvous()


def test_no_agent(make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(api.RendezvousConnectionError) as caught:
        make(conf=rdzvconf.Conf(agent_wait_s=0.3)).next_rendezvous()
    for said in (str(caught.value), capfd.readouterr().err):
        assert f"no agent at {tmp_path}/node/agent.sock (No such file or directory)" in said
        assert "`rankpulse agent`" in said
        assert "RANKPULSE_DIR" in said


def test_an_agent_that_objects(make: Make, agent: FakeAgent, world: World) -> None:
    def object_(session: Session, _join: Any) -> bool:
        session.send(error="too many torchruns of this user on this node")
        return True

    world.on_join = object_
    with pytest.raises(api.RendezvousConnectionError, match="does not let this torchrun join: too many torchruns"):
        make(conf=rdzvconf.Conf(agent_wait_s=0.3)).next_rendezvous()


def test_people_are_told_why_it_waits_once(make: Make, agent: FakeAgent, capfd: pytest.CaptureFixture[str]) -> None:
    agent.world.nodes = 0
    texts = iter(["1 of 2 nodes here", "1 of 2 nodes here", "for the policy's word"])

    def answer(session: Session, join: dict[str, Any]) -> bool:
        for text in texts:
            session.send(wait=text)
        session.send(met={**MET, "round": 1, "rank": 0, "nodes": 1, "port": join["port"]})
        return True

    agent.world.on_join = answer
    make().next_rendezvous()
    assert capfd.readouterr().err == (
        "rankpulse: waiting: 1 of 2 nodes here\nrankpulse: waiting: for the policy's word\n"
    )


MET = {"run_uid": "demo-1", "address": "127.0.0.1"}


def test_a_join_is_resent_to_an_agent_that_comes_back(make: Make, agent: FakeAgent, world: World) -> None:
    world.nodes = 0
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(make().next_rendezvous()))
    thread.start()
    eventually_sync(lambda: world.heard("join"), 10, "the join")
    agent.stop()
    world.nodes = 1
    world.waiting.clear()
    agent.start()
    thread.join(20)
    assert found[0].rank == 0
    assert [join["join"] for join in world.heard("join")] == [1, 1]


def test_a_round_whose_store_cannot_be_reached_is_met_again(make: Make, agent: FakeAgent, world: World) -> None:
    def answer(session: Session, join: dict[str, Any]) -> bool:
        rank, nodes, port = (1, 2, 1) if join["join"] == 1 else (0, 1, join["port"])
        session.send(met={**MET, "round": join["join"], "rank": rank, "nodes": nodes, "port": port})
        return True

    world.on_join = answer
    mine = make(2, reach_s=0.3)
    assert mine.next_rendezvous().rank == 0
    assert [(join["join"], join["after"]) for join in world.heard("join")] == [(1, 0), (2, 1)]


def test_a_store_that_is_never_reached_ends_in_words(make: Make, agent: FakeAgent, world: World) -> None:
    def answer(session: Session, join: dict[str, Any]) -> bool:
        session.send(met={**MET, "round": join["join"], "rank": 1, "nodes": 2, "port": 1})
        return True

    world.on_join = answer
    with pytest.raises(api.RendezvousConnectionError, match=r"127.0.0.1 port 1 cannot be reached.*--local-addr"):
        make(2, reach_s=0.1).next_rendezvous()


def test_a_member_that_never_comes_is_named(make: Make, agent: FakeAgent, world: World) -> None:
    def answer(session: Session, join: dict[str, Any]) -> bool:
        session.send(met={**MET, "round": join["join"], "rank": 0, "nodes": 3, "port": join["port"]})
        return True

    world.on_join = answer
    with pytest.raises(api.RendezvousConnectionError, match="no word from group rank 1, 2"):
        make(3, reach_s=0.1).next_rendezvous()


def test_a_member_that_dies_on_the_way_costs_no_waiting(make: Make, agent: FakeAgent, world: World) -> None:
    def answer(session: Session, join: dict[str, Any]) -> bool:
        nodes = 2 if join["join"] == 1 else 1
        met = {**MET, "round": join["join"], "rank": 0, "nodes": nodes, "port": join["port"]}
        again = {"round": 1, "waiting": 1, "reason": "node b is gone"}
        both = json.dumps({"met": met}) + "\n" + json.dumps({"again": again}) + "\n"
        session.connection.sendall(both.encode())  # in one piece: the second must not be lost behind the first
        return True

    world.on_join = answer
    assert make(2, reach_s=600.0).next_rendezvous().world_size == 1
    assert [join["join"] for join in world.heard("join")] == [1, 2]


class ChildFailed(Exception):
    def get_first_failure(self) -> Any:
        return 3, type("Failure", (), {"exitcode": -9})()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, {"outcome": "finished", "reason": ""}),
        (SystemExit(0), {"outcome": "finished", "reason": ""}),
        (ChildFailed(), {"outcome": "failed", "reason": "rank 3 ended with exit code -9"}),
        (RuntimeError("the store\nis gone"), {"outcome": "failed", "reason": "RuntimeError: the store"}),
        (api.RendezvousTimeoutError("nobody came"), {"outcome": "gone", "reason": "nobody came"}),
        (KeyboardInterrupt(), {"outcome": "gone", "reason": "interrupted"}),
        (OSError("no \udcff"), {"outcome": "failed", "reason": "OSError: no ?"}),
    ],
)
def test_how_it_ended_is_told(
    make: Make, agent: FakeAgent, world: World, error: BaseException | None, said: dict[str, str]
) -> None:
    mine = make()
    mine.next_rendezvous()
    left: list[bool] = []
    try:
        try:
            if error is not None:
                raise error
        finally:
            left.append(mine.shutdown())
    except BaseException as caught:
        left.append(caught is error)
    assert left
    assert all(left)
    assert world.outcomes == [said]


def test_an_exception_around_torchrun_is_not_its_end(make: Make, agent: FakeAgent, world: World) -> None:
    try:
        raise ValueError("somebody else's")
    except ValueError:
        mine = make()
        mine.next_rendezvous()
        mine.shutdown()
    assert world.outcomes == [{"outcome": "finished", "reason": ""}]


def test_the_end_does_not_wait_for_an_agent_that_is_gone(make: Make, agent: FakeAgent) -> None:
    mine = make()
    mine.next_rendezvous()
    agent.stop()
    assert mine.shutdown() is False
    assert make().shutdown() is True, "nothing to leave"


def test_leaving_through_an_agent_that_came_back(make: Make, agent: FakeAgent, world: World) -> None:
    mine = make()
    mine.next_rendezvous()
    agent.stop()
    assert mine.num_nodes_waiting() == 0
    agent.start()
    assert mine.shutdown() is True
    assert world.heard("watch") == [{"run_uid": "demo-1", "round": 1, "join": 1}]


def test_set_closed_closes(make: Make, agent: FakeAgent, world: World) -> None:
    mine = make()
    mine.next_rendezvous()
    mine.set_closed()
    assert [said["outcome"] for said in world.outcomes] == ["failed"]


def parameters(**config: Any) -> Any:
    return api.RendezvousParameters("rankpulse", "h:29500", "job", 1, 2, "10.1.2.3", timeout=900, **config)


def test_torch_makes_it_from_its_parameters(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    os.environ["RANKPULSE_DIR"] = str(tmp_path)
    made = get_rendezvous_handler(parameters(join_timeout="5", is_host="1"))
    assert isinstance(made, handler.Handler)
    assert (made.get_run_id(), made._address, made._conf.join_timeout) == ("job", "10.1.2.3", 5.0)
    assert made._agent.line.path == f"{tmp_path}/agent.sock"
    assert "is_host: unknown here" in capfd.readouterr().err


def test_bad_conf_is_an_error_in_words() -> None:
    with pytest.raises(rdzvconf.BadConf, match="join_timeout=soon"):
        handler.create(parameters(join_timeout="soon"))


def test_own_address() -> None:
    assert stores.own_address("some.host", 4) == "some.host"
    assert stores.own_address(None, 1) == "127.0.0.1"
    found = stores.own_address(None, 2)
    assert found
    assert not found.startswith("127.")
    assert found != "localhost"


def test_the_plug_in_costs_other_torchruns_nothing() -> None:
    code = (
        "import sys; from rankpulse.trainer.plugin import load; load()\n"
        "print({'torch', 'asyncio', 'msgspec', 'rankpulse.trainer.handler'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr
