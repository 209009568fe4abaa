"""The port: real HTTP and TLS, by raw sockets where a library would be too polite."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from certs import Authority
from receiver_world import Recorder, other, restart, settings, signed
from support import eventually

from rankpulse.core.catalogue import RECEIVER
from rankpulse.receiver.clock import system
from rankpulse.receiver.main import Receiver
from rankpulse.receiver.server import CannotListen


@asynccontextmanager
async def serving(folder: Path, **change: Any) -> AsyncIterator[tuple[Receiver, Recorder]]:
    recorder = Recorder()
    receiver = Receiver(settings(folder, **change), acting={"slurm": recorder})
    try:
        await receiver.start()
        yield receiver, recorder
    finally:
        await receiver.close()


def now_signed(body: bytes, **more: Any) -> dict[str, str]:
    return signed(body, at=system().utc(), **more)


async def post(url: str, body: bytes, headers: dict[str, str], **more: Any) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers, **more) as answer:
        return answer.status, str(answer.reason), await answer.text()


def fresh(number: int = 1, **more: Any) -> bytes:
    return restart(number, at=system().utc(), **more)


async def raw(url: str, data: bytes) -> bytes:
    """What comes back for those bytes until the connection ends."""
    host, _, port = url.rpartition("/")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_rubbish_is_refused_and_fills_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path) as (receiver, _recorder):
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nwebhook-id: \xff\r\n"
        assert b" 400 " in await raw(receiver.server.url, head + b"webhook-signature: v1,secret\0\r\n\r\n")
        assert b" 401 " in await raw(
            receiver.server.url, head + b"webhook-timestamp: 1\r\nwebhook-signature: v1,\xff\r\n\r\n"
        )
        assert not [one for one in caplog.records if one.exc_info]
        assert "secret" not in caplog.text


async def test_statuses_with_their_sentences(tmp_path: Path) -> None:
    async with serving(tmp_path) as (receiver, recorder):
        url, body, page = f"{receiver.server.url}/rankpulse", fresh(), other("page", at=system().utc())
        assert await post(url, body, now_signed(body)) == (204, "accepted", "")
        assert await post(url, body, now_signed(body)) == (204, "had already", "")
        assert (await post(f"{receiver.server.url}/", page, now_signed(page)))[:2] == (204, "heard")
        wrong = fresh(2, cluster="lab")
        assert await post(url, wrong, now_signed(wrong)) == (403, "Forbidden", "cluster 'lab' is none of `clusters`\n")
        status, _, text = await post(url, body, now_signed(body, keys=("f" * 32,)))
        assert (status, text) == (401, "no signature by a key that is known here\n")
        status, _, text = await post(url, body, signed(body, at=system().utc() - 400))
        assert (status, "400 s too late" in text) == (401, True)
        assert (await post(url, body + b"x" * 2_000_000, now_signed(body)))[0] == 413
        assert (await post(f"{receiver.server.url}/other", body, now_signed(body)))[0] == 404
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 405
        await eventually(lambda: receiver.vitals.actions["slurm", "done"], 5, "the restart")
        assert len(recorder.plans) == 1


async def test_what_is_refused_is_counted_and_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rankpulse.receiver")
    async with serving(tmp_path) as (receiver, recorder):
        url, body = f"{receiver.server.url}/rankpulse", fresh()
        assert (await post(url, body, now_signed(body)))[0] == 204
        for data, headers in (
            (body, now_signed(body)),  # again
            (body, now_signed(body, keys=("f" * 32,))),  # forged
            (body, signed(body, at=system().utc() - 400)),  # late
            (body + b"x" * 2_000_000, now_signed(body)),
        ):
            await post(url, data, headers)
        assert {what: n for what, n in receiver.vitals.refused.items() if n} == {"signature": 1, "late": 1, "size": 1}
        assert receiver.vitals.events["had"] == 1
        for said in ("had already: nothing is done", "no signature by a key", "too late", "at most 1048576 bytes"):
            assert said in caplog.text
        assert len(recorder.plans) <= 1


async def test_a_body_without_an_announced_length_is_bounded_too(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 10_000

    async with serving(tmp_path, limits={"body_max": 20_000}) as (receiver, recorder):
        try:
            async with aiohttp.ClientSession() as session, session.post(receiver.server.url, data=endless()) as answer:
                assert answer.status == 413
        except aiohttp.ClientError:
            pass  # closed while it was still being sent
        await eventually(lambda: receiver.vitals.requests["413"], 5, "the refusal")
        assert recorder.plans == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 1000,
        b"POST / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=range(10),
)
async def test_garbage_on_the_wire_is_refused_and_the_next_is_served(tmp_path: Path, data: bytes) -> None:
    async with serving(tmp_path, limits={"exchange_s": 1.0}) as (receiver, recorder):
        answer = await raw(receiver.server.url, data)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
        assert recorder.plans == []
        body = fresh()
        assert (await post(receiver.server.url, body, now_signed(body)))[0] == 204


@pytest.mark.parametrize("begin", [b"", b"POST / HTTP/1.1\r\nhost", b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nx"])
async def test_who_is_slow_is_closed_and_keeps_nobody_out(tmp_path: Path, begin: bytes) -> None:
    async with serving(tmp_path, limits={"exchange_s": 2.0, "connections": 8}) as (receiver, _):
        slow = [asyncio.create_task(raw(receiver.server.url, begin)) for _ in range(20)]
        await eventually(lambda: receiver.vitals.dropped >= 12, 5, "the eldest to go for new ones")
        assert len(receiver.server.connections) <= 8
        body = fresh()
        assert (await post(receiver.server.url, body, now_signed(body)))[0] == 204
        await asyncio.gather(*slow)
        await eventually(lambda: len(receiver.server.connections) == 0, 5, "all to be closed")


async def test_two_at_once_are_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as (receiver, recorder):
        body = fresh()
        told = [post(receiver.server.url, body, now_signed(body)) for _ in range(20)]
        answers = await asyncio.gather(*told)
        assert sorted(reason for _, reason, _ in answers) == ["accepted", *["had already"] * 19]
        await eventually(lambda: receiver.vitals.actions["slurm", "done"], 5, "the restart")
        assert len(recorder.plans) == 1


async def test_metrics_and_health(tmp_path: Path) -> None:
    async with serving(tmp_path, dry_run=True) as (receiver, _), aiohttp.ClientSession() as session:
        body = fresh()
        await post(receiver.server.url, body, now_signed(body))
        await post(receiver.server.url, body, now_signed(body, keys=("f" * 32,)))
        await eventually(lambda: receiver.vitals.actions["slurm", "dry"], 5, "the dry run")
        async with session.get(f"{receiver.pages.url}/metrics") as answer:
            text = await answer.text()
        for metric in RECEIVER:
            assert f"# HELP {metric.name}" in text
        for line in (
            'rankpulse_receiver_actions_total{actuator="slurm",end="dry"} 1.0',
            'rankpulse_receiver_refused_total{what="signature"} 1.0',
            'rankpulse_receiver_requests_total{status="401"} 1.0',
            'rankpulse_receiver_events_total{what="accepted"} 1.0',
            "rankpulse_receiver_ready 1.0",
        ):
            assert line in text
        (tmp_path / "key").unlink()
        assert (await post(receiver.server.url, body, now_signed(body)))[0] == 503
        async with session.get(f"{receiver.pages.url}/healthz") as answer:
            assert answer.status == 503
            assert "secret_file" in await answer.text()


async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    cert, key = old.issue("receiver")
    async with serving(tmp_path, tls={"cert_file": cert, "key_file": key}) as (receiver, _):
        body, url = fresh(), receiver.server.url
        trust = {name.ca_file: ssl.create_default_context(cafile=name.ca_file) for name in (old, new)}
        assert url.startswith("https://")
        assert (await post(url, body, now_signed(body), ssl=trust[old.ca_file]))[0] == 204
        Path(cert).write_text("no certificate")
        receiver.certificates.look()
        assert (await post(url, body, now_signed(body), ssl=trust[old.ca_file]))[0] == 204
        for source, goal in zip(new.issue("receiver"), (cert, key), strict=True):
            Path(goal).write_bytes(Path(source).read_bytes())
        receiver.certificates.look()
        assert (await post(url, body, now_signed(body), ssl=trust[new.ca_file]))[0] == 204
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await post(url, body, now_signed(body), ssl=trust[old.ca_file])
        with pytest.raises(aiohttp.ClientError):
            await post(url.replace("https", "http"), body, now_signed(body))


async def test_a_taken_port_is_said(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    async with serving(tmp_path) as (receiver, _):
        taken = receiver.server.url.rpartition("/")[2]
        for change in ({"listen": taken}, {"metrics_listen": taken}):
            with pytest.raises(CannotListen, match=f"cannot listen on {taken}"):
                async with serving(tmp_path / "two", **change):
                    pass
