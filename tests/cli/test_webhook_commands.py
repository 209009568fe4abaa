"""`rankpulse webhook` against a real store and a monitor that sends: what is said, and the exit codes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support import eventually
from typer.testing import CliRunner

from rankpulse.cli.main import app
from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.settings import parse
from rankpulse.monitor.clock import system
from rankpulse.monitor.main import Monitor
from rankpulse.store.etcd import open_store

pytestmark = pytest.mark.live


class Place:
    """A target that answers `status`, a monitor that leads, and a configuration that knows both."""

    def __init__(self, etcd: str, cluster: str, directory: Path) -> None:
        self.etcd, self.cluster, self.directory = etcd, cluster, directory
        self.status, self.got = 200, list[dict[str, Any]]()

    async def _take(self, request: web.Request) -> web.Response:
        self.got.append(await request.json())
        return web.Response(status=self.status, text="no")

    async def start(self) -> None:
        application = web.Application()
        application.router.add_post("/hook", self._take)
        self.runner = web.AppRunner(application)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        key = self.directory / "key"
        key.touch(mode=0o600)
        key.write_text("0123456789abcdef0123456789abcdef\n")
        tree = {
            "cluster": self.cluster,
            "preset": "drill",
            "store": {"endpoints": [self.etcd]},
            "webhook": {
                "give_up_after_s": 1.0,
                "targets": [
                    {
                        "name": "pager",
                        "url": f"http://127.0.0.1:{self.runner.addresses[0][1]}/hook",
                        "secret_file": str(key),
                    }
                ],
            },
        }
        settings = parse(tree)
        from rankpulse.cli.config import as_toml

        self.config = self.directory / "rankpulse.toml"
        self.config.write_text(as_toml(settings))
        self.monitor = Monitor(settings, system())
        self.store = await open_store(settings.store)
        self.tasks = [asyncio.ensure_future(part) for part in self.monitor.assemble(self.store)]
        await eventually(lambda: self.monitor.loop and self.monitor.loop.office, 20, "a leader")

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.store.close()
        await self.runner.cleanup()

    async def say(self, *words: str) -> tuple[int, str]:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["webhook", *words, "--config", str(self.config)])
        return done.exit_code, done.output


@pytest.fixture
async def place(etcd: str, cluster: str, tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(etcd, cluster, tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_a_test_says_whether_it_was_taken(place: Place) -> None:
    code, said = await place.say("test", "--reason", "new key")
    assert (code, len(place.got)) == (0, 1), said
    assert "new key" in place.got[0]["data"]["summary"]
    place.status = 401
    code, said = await place.say("test", "pager", "--reason", "other key", "--json")
    (row,) = json.loads(said)
    assert (code, row["state"], row["last_error"]) == (1, "dead", "answered 401: no")
    code, said = await place.say("test", "pagr", "--reason", "spelled wrong")
    assert (code, "refused" in said, "It knows no target pagr" in said) == (2, True, True)


async def test_what_was_given_up_is_listed_and_tried_anew(place: Place) -> None:
    code, said = await place.say("ls")
    assert (code, said.strip()) == (0, "nothing waits to be told, and nothing was given up")
    place.status = 500
    keys = Keys(place.cluster)
    incident = r.Incident(
        id="i0001-0001", klass="unknown", state="closed", opened_at=1.8e9, action="page", told=("page/pager",)
    )
    await place.store.put(keys.incident(incident.id), codec.encode(incident))

    async def state() -> str:
        item = await place.store.get(keys.outgoing("i0001-0001-page", "pager"))
        return codec.decode(r.Outgoing, item.value).state if item else ""

    async def is_dead() -> bool:
        return await state() == "dead"

    async def is_delivered() -> bool:
        return await state() == "delivered"

    await eventually(is_dead, 20, "it to be given up")
    code, said = await place.say("ls")
    assert "i0001-0001-page" in said
    assert "answered 500" in said
    done = await asyncio.to_thread(CliRunner().invoke, app, ["status", "--config", str(place.config)])
    assert "pager: 1 given up" in done.output
    code, said = await place.say("retry", "i0001-0001-closed", "--reason", "it is back")
    assert (code, "i0001-0001-closed was not given up" in said) == (2, True)
    place.status = 204
    code, said = await place.say("retry", "--reason", "it is back")
    assert (code, "1 tried anew" in said) == (0, True)
    await eventually(is_delivered, 20, "it to be delivered")

    def shown() -> bool:
        row = place.monitor.state()["outbox"]["targets"]["pager"]
        return bool(row == {"kind": "cloudevents", "waiting": 0, "dead": 0, "delivered": 1})

    await eventually(shown, 10, "the page to show it")
    assert len(place.got) >= 2
    code, said = await place.say("ls", "--all")
    assert "delivered" in said
