"""What looks beside the ranks: bounded, whatever hangs, lies or floods."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support import eventually

from rankpulse.agent import children, dumps, gpus, ras
from rankpulse.agent.aside import Aside, TooSlow
from rankpulse.agent.dumps import NODE, Dumps, name_of
from rankpulse.agent.folder import Folder, private
from rankpulse.agent.gpus import HANGS, Gpus
from rankpulse.agent.py_spy import threads_of
from rankpulse.agent.stacks import bare, main_thread, main_thread_of_py_spy, redacted, short
from rankpulse.core.codec import Refused
from rankpulse.core.look_evidence import CHUNK_MAX, DUMP_MAX, Fetch


# -- threads -------------------------------------------------------------------------------------------------------
async def test_what_hangs_costs_one_thread_and_nobody_waits_for_it() -> None:
    aside, gate = Aside("test", 2), threading.Event()
    began = time.monotonic()
    with pytest.raises(TooSlow, match="did not come back"):
        await aside.call(0.05, gate.wait)
    assert aside.hanging == 1
    assert await aside.call(5.0, lambda: "still served") == "still served"
    with pytest.raises(TooSlow):
        await aside.call(0.05, gate.wait)
    with pytest.raises(TooSlow, match="still hang"):
        await aside.call(5.0, lambda: "no thread is left")
    assert time.monotonic() - began < 4
    gate.set()
    await eventually(lambda: aside.hanging == 0, 5, "they come back")
    assert await aside.call(5.0, lambda: "served again") == "served again"
    aside.close()


async def test_what_hangs_is_not_looked_at_again_and_others_are() -> None:
    aside, gate = Aside("test", 3), threading.Event()
    with pytest.raises(TooSlow):
        await aside.call(0.05, gate.wait, at=41)
    for _ in range(9):
        with pytest.raises(TooSlow, match="still hang"):
            await aside.call(5.0, gate.wait, at=41)
    assert aside.hanging == 1
    assert await aside.call(5.0, lambda: "served", at=42) == "served"
    gate.set()
    await eventually(lambda: aside.hanging == 0, 5, "it comes back")
    assert await aside.call(5.0, gate.wait, at=41)
    aside.close()


PROGRAM = """
import asyncio, threading
from rankpulse.agent.aside import Aside, TooSlow
async def main():
    aside = Aside("test", 2)
    try:
        await aside.call(0.1, threading.Event().wait)
    except TooSlow:
        print("given up", await aside.call(5.0, lambda: "and on"))
    aside.close()
asyncio.run(main())
"""


@pytest.mark.live
def test_what_hangs_does_not_keep_the_agent_from_ending() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "given up and on\n"


async def test_what_goes_wrong_aside_is_told() -> None:
    aside = Aside("test", 1)
    with pytest.raises(PermissionError):
        await aside.call(5.0, _refuse)
    aside.close()


def _refuse() -> None:
    raise PermissionError("not ours")


# -- children ------------------------------------------------------------------------------------------------------
@pytest.mark.live
async def test_a_child_is_given_up_when_its_time_is_over() -> None:
    began = time.monotonic()
    said = await children.run(["sh", "-c", "echo so far; exec sleep 60"], 0.5)
    assert (said.output, said.code) == (b"so far\n", None)
    assert time.monotonic() - began < 5
    assert said.process
    assert said.process.returncode is not None


@pytest.mark.live
async def test_a_child_that_floods_is_cut() -> None:
    said = await children.run(["sh", "-c", "exec cat /dev/zero"], 60.0)
    assert said.code is None
    assert said.process
    assert said.process.returncode is not None
    assert children.OUTPUT_MAX <= len(said.output) <= children.OUTPUT_MAX + 65_536
    with pytest.raises(OSError, match="No such file"):
        await children.run(["/no/such/program"], 1.0)


# -- GPUs ----------------------------------------------------------------------------------------------------------
NVML = """
import time, types
NVMLError = type("NVMLError", (Exception,), {{}})
def nvmlInit(): time.sleep({hangs})
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index):
    if index == 2: raise NVMLError("GPU is lost")
    return index
def nvmlDeviceGetUtilizationRates(gpu): return types.SimpleNamespace(gpu=100 - gpu)
def nvmlDeviceGetMemoryInfo(gpu): return types.SimpleNamespace(used=3 << 29)
def nvmlDeviceGetUUID(gpu): return b"GPU-1"
def nvmlDeviceGetPciInfo(gpu): return types.SimpleNamespace(busId=b"00000000:0F:00.0")
def nvmlDeviceGetCurrentClocksEventReasons(gpu): return 0x40
def nvmlDeviceGetComputeRunningProcesses(gpu): return [types.SimpleNamespace(pid=41 + gpu)]
"""


def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: float = 0) -> Gpus:
    (tmp_path / "pynvml.py").write_text(NVML.format(hangs=hangs))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    return Gpus("n1", devices="null")  # every machine has that one


@pytest.mark.live
async def test_how_busy_gpus_are_and_with_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use = await nvml(tmp_path, monkeypatch).look(20.0)
    assert [(gpu.gpu, gpu.util, gpu.memory_used_gib, gpu.throttled) for gpu in use.devices] == [
        (0, 100.0, 1.5, "thermal"), (1, 99.0, 1.5, "thermal"),
    ]  # fmt: skip
    assert {pid: gpu.gpu for pid, gpu in use.of.items()} == {41: 0, 42: 1}
    assert use.left_out == ("GPU 2: GPU is lost",)


@pytest.mark.live
async def test_a_driver_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    use = await nvml(tmp_path, monkeypatch, hangs=60).look(0.5)
    assert use.left_out[0].startswith(HANGS)
    assert time.monotonic() - began < 5


@pytest.mark.live
async def test_whoever_asks_meanwhile_starts_no_second_process(tmp_path: Path) -> None:
    """Also where the first has lost its patience: a process that hangs in the driver cannot be killed."""
    started = tmp_path / "started"
    asked = Gpus("n1", child=("/bin/sh", "-c", f"echo once >> {started}; exec sleep 60"), devices="null")
    first = asyncio.create_task(asked.look(1.0))
    await eventually(started.exists, 10, "it was started")
    first.cancel()
    use = await asked.look(1.0)
    assert use.left_out[0].startswith(HANGS)
    assert started.read_text() == "once\n"


async def test_without_gpus_nobody_is_started() -> None:
    assert await Gpus("n1", child=("/no/such/program",), devices="no such device").look(5.0) == gpus.Use()


@pytest.mark.parametrize(
    "said", [b"", b"x", b"[" * 9999, b'{"error":"no driver"}', b'[{"index":-1}]', b'[{"index":1,"util":"x"}]', b"\xff"]
)
def test_what_a_child_says_is_not_believed(said: bytes) -> None:
    use = gpus.use("n1", said)
    assert use.devices == ()
    assert use.left_out


# -- NCCL ----------------------------------------------------------------------------------------------------------
@pytest.mark.live
async def test_what_nccl_says() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readline())
        writer.write(b"OK\n")
        heard.append(await reader.readline())
        writer.write(b"NCCL version 2.27\n\n===\nGroup 0: 7 of 8 ranks RUNNING\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        text = await ras.status(("127.0.0.1", server.sockets[0].getsockname()[1]), 5.0)
    assert heard == [b"timeout 1\n", b"verbose status\n"]
    assert ras.first_lines(text) == ("NCCL RAS: NCCL version 2.27", "NCCL RAS: Group 0: 7 of 8 ranks RUNNING")


@pytest.mark.live
@pytest.mark.parametrize("how", ["silent", "trickling", "flooding"])
async def test_who_is_not_nccl_costs_no_more_than_its_time(how: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"OK\n" if how != "silent" else b"")
            while how != "silent":
                writer.write(b"x" * (1 if how == "trickling" else 65_536))
                await writer.drain()
                await asyncio.sleep(0.01 if how == "trickling" else 0)
            await reader.read()
        except OSError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        began = time.monotonic()
        text = await ras.status(("127.0.0.1", server.sockets[0].getsockname()[1]), 0.3)
        assert time.monotonic() - began < 3
    assert len(text) <= ras.TEXT_MAX + 8192


@pytest.mark.parametrize(
    ("said", "port"),
    [("", 28028), ("127.0.0.1:7777", 7777), ("10.0.0.1:7777", 7777), ("[::1]:7", 7), ("x", 28028), (":99999", 28028)],
)
def test_only_this_machine_is_asked(said: str, port: int) -> None:
    assert ras.place({ras.VARIABLE: said}) == ("127.0.0.1", port)


# -- dumps ---------------------------------------------------------------------------------------------------------
def content(size: int = 10) -> dict[str, Any]:
    return {"flight_recorder": os.urandom(size).hex()}


def test_dumps_are_ours_alone_and_read_in_pieces(tmp_path: Path) -> None:
    kept = Dumps(private(str(tmp_path / "dumps")), 10, 64 << 20)
    told = kept.write("20260101T000000-000", "c1", {7: content(400_000), NODE: {"kernel": []}})
    assert [(dump.rank, dump.name) for dump in told] == [
        (7, "20260101T000000-000.c1.rank7.json.gz"), (NODE, "20260101T000000-000.c1.node.json.gz"),
    ]  # fmt: skip
    path = tmp_path / "dumps" / told[0].name
    assert (path.stat().st_mode & 0o777, (tmp_path / "dumps").stat().st_mode & 0o777) == (0o600, 0o700)
    assert path.stat().st_size == told[0].bytes > CHUNK_MAX
    data = b""
    while len(data) < told[0].bytes:
        data += kept.piece(Fetch(name=told[0].name, offset=len(data))).data
    assert "flight_recorder" in json.loads(gzip.decompress(data))
    end = kept.piece(Fetch(name=told[0].name, offset=2**31))
    assert (end.data, end.size) == (b"", told[0].bytes)


@pytest.mark.parametrize("name", ["none.json.gz", "secret", "link.json.gz", "dumps.json.gz"])
def test_what_is_no_dump_is_refused(tmp_path: Path, name: str) -> None:
    place = tmp_path / "dumps"
    kept = Dumps(private(str(place)), 10, 1 << 20)
    (place / "secret").write_text("x")
    (place / "link.json.gz").symlink_to("/etc/passwd")
    (place / "dumps.json.gz").mkdir()
    with pytest.raises(Refused):
        kept.piece(Fetch(name=name))
    with pytest.raises(Refused):
        Dumps(None, 10, 1).piece(Fetch(name=name))


def test_the_oldest_go_by_count_and_by_bytes(tmp_path: Path) -> None:
    place = tmp_path / "dumps"
    kept = Dumps(private(str(place)), 3, 1 << 20)
    (place / (name_of("t", "c0", 1) + ".tmp")).write_text("never finished")
    for number in range(5):
        kept.write("t", f"c{number}", {0: content()})
        os.utime(place / name_of("t", f"c{number}", 0), (number, number))
    kept.write("t", "c5", {0: content()})
    assert sorted(path.name for path in place.iterdir()) == [name_of("t", f"c{n}", 0) for n in (3, 4, 5)]
    told = Dumps(private(str(place)), 3, 5000).write("t", "c6", {0: content(4000), 1: content(4000)})
    assert len(told) == 1
    assert sum(path.stat().st_size for path in place.iterdir()) <= 5000


def test_what_others_keep_in_that_directory_stays(tmp_path: Path) -> None:
    """Somebody may set a directory that is in use already."""
    foreign = [tmp_path / name for name in ("train.log", "weights.json.gz", "old.tar.gz.tmp", ".profile")]
    for path in foreign:
        path.write_text("theirs")
        os.utime(path, (1, 1))
    kept = Dumps(private(str(tmp_path)), 1, 1)
    for number in range(3):
        kept.write("t", f"c{number}", {0: content()})
    assert sorted(tmp_path.iterdir()) == sorted(foreign)


class Full(Folder):
    """A disk that takes no third file."""

    def write(self, name: str, data: bytes) -> None:
        if len(self.names()) >= 2:
            raise OSError(28, "No space left on device")
        Folder.write(self, name, data)


def test_a_full_disk_is_given_back_what_is_too_much(tmp_path: Path) -> None:
    place = private(str(tmp_path / "dumps"))
    kept = Dumps(Full(place.path, place.fd), 1, 1 << 20)
    with pytest.raises(OSError, match="No space"):
        kept.write("t", "c0", {0: content(), 1: content(), 2: content()})
    assert len(place.names()) == 1


def test_no_dump_is_too_large_to_be_fetched() -> None:
    data = dumps.packed({"rank": 3, "flight_recorder": os.urandom(DUMP_MAX).hex()})
    assert json.loads(gzip.decompress(data)) == {"rank": 3, "flight_recorder": "left out: too large"}
    assert len(dumps.packed({"flight_recorder": "", "more": os.urandom(DUMP_MAX).hex()})) < 1000


@pytest.mark.parametrize("order", ["c0001-0001", "../../etc", "a b\x00c", "x" * 999])
def test_names_are_names(order: str) -> None:
    assert dumps._NAME.fullmatch(name_of("2026-01-01", order, 16383))


# -- stacks --------------------------------------------------------------------------------------------------------
TRACEBACK = """Current thread 0x00007fecf93106c0 (most recent call first):
  <no Python frame>

Thread 0x00007ff850ff96c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007fed1d658b80 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2753 in send
  File "/home/me/secret project/train.py", line 13 in train
  File "/home/me/secret project/train.py", line 23 in <module>
"""
MAIN = (
    "secret project/train.py:23 <module>",
    "secret project/train.py:13 train",
    "torch/distributed/distributed_c10d.py:2753 send",
)


def test_the_main_thread_is_the_last() -> None:
    assert main_thread(TRACEBACK) == MAIN
    assert main_thread(TRACEBACK.replace("<module>", "_call_with_frames")) != ()


@pytest.mark.parametrize(
    "text",
    ["", "garbage", "\x00" * 1000, TRACEBACK.split("\n\n")[0], "\n\n".join(TRACEBACK.split("\n\n")[:2]), "Thread 0x"],
)
def test_where_it_cannot_be_told_there_is_none(text: str) -> None:
    assert main_thread(text) == ()


def test_a_hundred_threads_and_a_huge_stack() -> None:
    frames = "".join(f'  File "/x/y/{"z" * 500}.py", line {n} in f\x1b[2J\n' for n in range(10_000))
    found = main_thread(f"Thread 0x1 (most recent call first):\n{frames}")
    assert len(found) == 120
    assert all(len(frame) <= 240 and frame.isprintable() for frame in found)
    cut = "\n\n".join(['Thread 0x2 (most recent call first):\n  File "t.py", line 1 in _bootstrap'] * 100 + ["..."])
    assert main_thread(cut) == ()


def test_what_py_spy_wrote() -> None:
    said = 'Process 1: train --token hidden\nThread 9 (idle): "MainThread"\n    lie (x.py:1)\nPython v3.11.7 (/usr)\n\n'
    said += 'Thread 7 (idle): "other"\n    run (threading.py:1)\nThread 1 (idle): "MainThread"\n'
    said += "    wait (a/b/c/lock.py:23)\n    <module> (train.py:60)\n"
    text = threads_of(said)
    assert "hidden" not in text
    assert main_thread_of_py_spy(text) == ("train.py:60 <module>", "c/lock.py:23 wait")
    assert main_thread_of_py_spy("") == main_thread_of_py_spy("x" * 9999) == ()


@pytest.mark.parametrize("told", ["    f (" + " (" * 400_000, "    f (" + "/a (" * 200_000, '  File "' + "/" * 900_000])
def test_names_that_are_made_to_be_slow_cost_nothing(told: str) -> None:
    """Patterns hold Python's lock: whoever can make one slow stops the heart of the node."""
    began = time.monotonic()
    redacted(told)
    main_thread_of_py_spy('Thread 1 (idle): "MainThread"\n' + f"{told[:8000]}\n" * 100)
    main_thread(f"Thread 0x1 (most recent call first):\n{told}\n")
    assert time.monotonic() - began < 2


def test_redacted() -> None:
    text = redacted(TRACEBACK + "    wait (/home/me/secret project/lock.py:23)\n")
    assert "secret project" not in text
    assert "/opt" not in text
    assert 'File "train.py", line 13 in train' in text
    assert "    wait (lock.py:23)" in text
    assert [bare(frame) for frame in MAIN] == [
        "train.py:23 <module>",
        "train.py:13 train",
        "distributed_c10d.py:2753 send",
    ]


@pytest.mark.parametrize(
    ("path", "told"),
    [("/a/b/c/d.py", "c/d.py"), ("/usr/lib/python3.12/queue.py", "queue.py"), ("<string>", "<string>"), ("", ""),
     ("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "torch/utils/data/dataloader.py")],
)  # fmt: skip
def test_paths_say_which_module_it_is(path: str, told: str) -> None:
    assert short(path) == told
