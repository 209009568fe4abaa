"""`rankpulse evidence` against a real etcd and agents that answer over TCP, as well as they can."""

import asyncio
import gzip
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rankpulse.agent.log import Log
from rankpulse.agent.probe import ProbeServer
from rankpulse.cli import torch_pickles
from rankpulse.cli.main import app
from rankpulse.core import codec, look, look_evidence
from rankpulse.core.codec import Refused
from rankpulse.core.keys import Keys
from rankpulse.core.records import Beat, DumpRow, Finding, Incident, NodeState, Record
from rankpulse.core.settings import ProbeSettings, StoreSettings
from rankpulse.monitor.main import boot_id
from rankpulse.store.etcd import open_store

TOKEN = "a token that is long enough"
PIECE = 1000


class Agents:
    """Agents of some nodes, on a loop of their own. Each gives out what `dumps` holds, piece by piece."""

    def __init__(self, token_file: Path) -> None:
        self.token_file = token_file
        self.dumps: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[str, str, int]] = []
        self.deaf_after: dict[str, int] = {}  # node -> questions it answers
        self._loop = asyncio.new_event_loop()
        self._servers: list[ProbeServer] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, node: str) -> str:
        """Its address."""
        return asyncio.run_coroutine_threadsafe(self._open(node), self._loop).result(10)

    async def _open(self, node: str) -> str:
        server = ProbeServer(
            node, ProbeSettings(token_file=str(self.token_file)), lambda: Beat(node=node, inc=1, seq=1, at=0.0),
            towards=(), name="localhost", clock=time.monotonic, log=Log(),
            more={look_evidence.DUMP: lambda ask: self._answer(node, ask)},
        )  # fmt: skip
        await server.open()
        self._servers.append(server)
        return server.address

    async def _answer(self, node: str, ask: look.Ask) -> bytes:
        about = look_evidence.fetch_of(ask)
        self.asked.append((node, about.name, about.offset))
        if sum(one == node for one, _, _ in self.asked) > self.deaf_after.get(node, 1_000_000):
            raise OSError("it dies in the middle of it")
        data = self.dumps.get((node, about.name))
        if data is None:
            raise Refused("no such dump here")
        piece = data[about.offset : about.offset + PIECE]
        return look_evidence.chunk(
            look_evidence.Chunk(name=about.name, size=len(data), offset=about.offset, data=piece)
        )

    def close(self) -> None:
        async def work() -> None:
            for server in self._servers:
                await server.close()

        asyncio.run_coroutine_threadsafe(work(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Case:
    """An incident with full dumps on the disks of some nodes, and the command."""

    def __init__(self, etcd: str, cluster: str, place: Path) -> None:
        self.etcd, self.keys, self.out = etcd, Keys(cluster), place / "out"
        token = place / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        self.agents = Agents(token)
        self.config = place / "rankpulse.toml"
        self.config.write_text(
            f'cluster = "{cluster}"\n[store]\nendpoints = ["{etcd}"]\n[probe]\ntoken_file = "{token}"\n'
        )

    def put(self, *records: tuple[str, Record]) -> None:
        async def work() -> None:
            store = await open_store(StoreSettings(endpoints=(self.etcd,)))
            for key, record in records:
                await store.put(key, codec.encode(record))
            await store.close()

        asyncio.run(work())

    def incident(self, *dumps: DumpRow, finding: bool = True) -> None:
        self.put((self.keys.incident("i1"), Incident(id="i1", klass="collective_hang", state="open", opened_at=1.0)))
        if finding:
            self.put((self.keys.finding("i1"), Finding(id="i1", at=1.0, dumps=dumps)))

    def node(self, name: str, address: str) -> None:
        state = NodeState(
            node=name, inc=1, at=0.0, host="h", agent_version="1", interval_s=1.0, probe=address, boot_id=boot_id()
        )
        self.put((self.keys.state(name), state))

    def dump(self, node: str, rank: int) -> DumpRow:
        """One of that rank, larger than a piece, packed as agents keep it."""
        data = gzip.compress(content(rank), 0)
        name = f"i1-e1_rank_{rank}.json.gz"
        self.agents.dumps[node, name] = data
        return DumpRow(node, rank, name, len(data))

    def run(self, *args: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, ["evidence", "i1", "--out", str(self.out), "-c", str(self.config), *args])
        return done.exit_code, done.stdout, done.stderr


def content(rank: int) -> bytes:
    """What an agent keeps of a rank: the flight recorder among other things. Rank 3 has called one less."""
    entries = [
        {"process_group": ["0", "default_pg"], "collective_seq_id": seq, "profiling_name": "gloo:all_reduce",
         "pg_id": 0, "p2p_seq_id": 0, "record_id": seq - 1, "op_id": seq, "is_p2p": False, "state": "scheduled",
         "retired": seq < 3, "input_sizes": [[4]], "output_sizes": [[4]], "input_dtypes": ["Float"],
         "output_dtypes": ["Float"], "time_created_ns": 1000 + seq, "timeout_ms": 60000, "thread_id": "1"}
        for seq in range(1, 3 if rank == 3 else 4)
    ]  # fmt: skip
    trace = {
        "version": "2.10",
        "entries": entries,
        "pg_config": {"": {"desc": "", "name": "", "ranks": "[0, 1, 2, 3]"}},
    }
    return json.dumps({"flight_recorder": trace, "stack": "x" * 5 * PIECE}).encode()


@pytest.fixture
def case(etcd: str, cluster: str, tmp_path: Path) -> Iterator[Case]:
    made = Case(etcd, cluster, tmp_path)
    yield made
    made.agents.close()


def two_nodes(case: Case) -> list[DumpRow]:
    dumps = [case.dump(f"n{rank // 2}", rank) for rank in range(4)]
    case.incident(*dumps)
    return dumps


def test_all_dumps_come_whole_and_the_diagnosis_reads_them(case: Case) -> None:
    two_nodes(case)
    for node in ("n0", "n1"):
        case.node(node, case.agents.start(node))
    code, out, _ = case.run()
    assert code == 0, out
    assert "4 of 4 dumps" in out
    assert f"rankpulse diagnose --flight-recorder {case.out}" in out
    file = case.out / "n1" / "i1-e1_rank_3.json"
    assert file.read_bytes() == content(3)
    assert not list(case.out.rglob("*.part"))
    assert [oct(p.stat().st_mode & 0o777) for p in (case.out, case.out / "n1", file)] == ["0o700", "0o700", "0o600"]
    done = CliRunner().invoke(app, ["diagnose", "--flight-recorder", str(case.out), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["culprits"]["ranks"] == [3]


def test_torchs_own_analyser_reads_the_pickles(case: Case) -> None:
    two_nodes(case)
    for node in ("n0", "n1"):
        case.node(node, case.agents.start(node))
    code, out, _ = case.run("--pickles")
    assert code == 0
    assert f"torchfrtrace {case.out}/torchfrtrace --prefix rank_" in out
    analyser = shutil.which("torchfrtrace", path=str(Path(sys.executable).parent))
    if analyser is None:
        pytest.skip("torch is not installed here")
    command = [analyser, str(case.out / "torchfrtrace"), "--prefix", "rank_"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "missing ranks: {3}" in done.stdout + done.stderr


def test_a_dump_without_a_flight_recorder_makes_no_pickle(tmp_path: Path) -> None:
    for rank, text in enumerate(('{"stack": "x"}', '{"flight_recorder": "left out"}', "no json", '{"entries": 7}')):
        (tmp_path / f"rank{rank}.json").write_text(text)
    assert torch_pickles.write(tmp_path, {rank: str(tmp_path / f"rank{rank}.json") for rank in range(4)}) == 0


def test_what_is_there_is_not_asked_for_again(case: Case) -> None:
    two_nodes(case)
    for node in ("n0", "n1"):
        case.node(node, case.agents.start(node))
    assert case.run()[0] == 0
    asked = len(case.agents.asked)
    assert case.run()[0] == 0
    assert len(case.agents.asked) == asked


def test_one_node_that_does_not_answer_stops_nobody_and_is_named(case: Case) -> None:
    two_nodes(case)
    case.node("n0", "127.0.0.1:1")  # nobody listens there
    case.node("n1", case.agents.start("n1"))
    code, out, _ = case.run()
    assert code == 1
    assert "2 of 4 dumps" in out
    assert "not from n0: the machine says that nobody listens there" in out
    assert (case.out / "n1" / "i1-e1_rank_2.json").exists()


@pytest.mark.parametrize(
    ("state", "why"), [(False, "not in the store any more"), (True, "tells no address to be looked at")]
)
def test_nodes_without_an_address_are_told(case: Case, state: bool, why: str) -> None:
    two_nodes(case)
    case.node("n1", case.agents.start("n1"))
    if state:
        case.node("n0", "")
    code, out, _ = case.run()
    assert code == 1
    assert why in out
    assert "2 of 4 dumps" in out


def test_a_fetch_that_broke_off_goes_on_where_it_was(case: Case) -> None:
    case.incident(case.dump("n0", 0))
    case.node("n0", case.agents.start("n0"))
    case.agents.deaf_after["n0"] = 3
    code, out, _ = case.run()
    assert code == 1
    assert "not from n0" in out
    assert (case.out / "n0" / "i1-e1_rank_0.json.part").stat().st_size == 3 * PIECE
    assert not (case.out / "n0" / "i1-e1_rank_0.json").exists()
    case.agents.deaf_after.clear()
    case.agents.asked.clear()
    assert case.run()[0] == 0
    assert case.agents.asked[0][2] == 3 * PIECE
    assert (case.out / "n0" / "i1-e1_rank_0.json").read_bytes() == content(0)


def test_a_dump_that_was_rotated_away_costs_only_itself(case: Case) -> None:
    dumps = two_nodes(case)
    for node in ("n0", "n1"):
        case.node(node, case.agents.start(node))
    del case.agents.dumps["n0", dumps[0].name]
    code, out, _ = case.run()
    assert code == 1
    assert "3 of 4 dumps" in out
    assert "no such dump here" in out


def test_one_rank_may_be_asked_for(case: Case) -> None:
    two_nodes(case)
    for node in ("n0", "n1"):
        case.node(node, case.agents.start(node))
    code, out, _ = case.run("--rank", "3", "--json")
    assert code == 0
    (row,) = json.loads(out)["dumps"]
    assert (row["node"], row["rank"], row["why"]) == ("n1", 3, "")
    code, _, err = case.run("--rank", "9")
    assert code == 2
    assert "no full dump of rank 9 is known for i1; there are those of ranks 0-3" in err


@pytest.mark.parametrize("finding", [False, True])
def test_an_incident_without_dumps_says_so(case: Case, finding: bool) -> None:
    case.incident(finding=finding)
    code, _, err = case.run()
    assert code == 2
    assert "rankpulse explain i1" in err


def test_a_wrong_token_is_said(case: Case, tmp_path: Path) -> None:
    two_nodes(case)
    case.node("n0", case.agents.start("n0"))
    case.node("n1", case.agents.start("n1"))
    other = tmp_path / "other"
    other.write_text("a token that is another one")
    case.config.write_text(case.config.read_text().replace(str(case.agents.token_file), str(other)))
    code, out, _ = case.run()
    assert code == 1
    assert "is probe.token_file the same on agents and monitors?" in out


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", ".hidden", "a/b"])
def test_names_that_no_agent_gives_are_not_written(case: Case, name: str) -> None:
    case.incident(DumpRow("n0", 0, name, 10))
    case.node("n0", case.agents.start("n0"))
    assert case.run()[0] == 1
    assert case.agents.asked == []


def test_what_cannot_be_unpacked_leaves_nothing_behind(case: Case) -> None:
    row = case.dump("n0", 0)
    case.agents.dumps["n0", row.name] = case.agents.dumps["n0", row.name][:-20] + b"x" * 20
    case.incident(row)
    case.node("n0", case.agents.start("n0"))
    code, out, _ = case.run()
    assert code == 1
    assert "cannot be unpacked" in out
    assert not list((case.out / "n0").iterdir())


def test_no_more_time_is_said_with_what_to_do(case: Case) -> None:
    case.incident(*(case.dump("n0", rank) for rank in range(40)))
    case.node("n0", case.agents.start("n0"))
    slow = case.agents._answer

    async def slowly(node: str, ask: look.Ask) -> bytes:
        await asyncio.sleep(0.05)
        return await slow(node, ask)

    case.agents._answer = slowly  # type: ignore[method-assign]
    code, out, _ = case.run("--time", "1")
    assert code == 1
    assert "the same command goes on where this ended" in out
