"""A real monitor and a real agent, all locked: no secret shows anywhere, and who may act acts in his name."""

import asyncio
import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certs import Authority
from fort import CLUSTER, init
from support import eventually_sync
from typer.testing import CliRunner

from rankpulse.cli.main import app
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Arm, Beat, Cordon, Leader, RunMode, RunState
from rankpulse.core.settings import StoreSettings
from rankpulse.store.embedded import EmbeddedEtcd, ServerTls, free_ports
from rankpulse.store.etcd import EtcdStore

pytestmark = pytest.mark.live
KEYS = Keys(CLUSTER)
SECRETS = {
    "reads": "plantedreader0000000000000001",
    "acts": "plantedactor00000000000000002",
    "probe": "plantedprobe00000000000000003",
    "hook": "plantedhook000000000000000004",
    "wrong": "plantedguess00000000000000005",
}


class Locked:
    """Everything of one cluster in `folder`."""

    def __init__(self, folder: Path, etcd: EmbeddedEtcd, authority: Authority) -> None:
        self.folder, self.etcd, self.authority = folder, etcd, authority
        self.passwords, self.pids = folder / "passwords", list[int]()
        self.port, self.agent_port = free_ports(2)
        self.url, self.agent_url = f"https://127.0.0.1:{self.port}", f"https://127.0.0.1:{self.agent_port}"
        self.cert_file, self.key_file = authority.issue("cluster")
        init(self.store(), "n1", password_dir=str(self.passwords), enable_auth=True)
        self._secret("tokens", f"read prometheus {SECRETS['reads']}\nact ann {SECRETS['acts']}\n")
        for name in ("reads", "acts", "probe", "hook"):
            self._secret(name, SECRETS[name] + "\n")
        self.configs = {part: self._config(part, user) for part, user in self.users().items()}

    def users(self) -> dict[str, str]:
        return {
            "monitor": "rankpulse.prod.monitor",
            "agent": "rankpulse.prod.agent.n1",
            "operator": "rankpulse.prod.operator",
        }

    def store(self, user: str = "") -> StoreSettings:
        return StoreSettings(
            endpoints=(self.etcd.endpoint,), ca_file=self.authority.ca_file, cert_file=self.cert_file,
            key_file=self.key_file, timeout_s=5.0, user=user, password_file=str(self.passwords / user) if user else "",
        )  # fmt: skip

    def _secret(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o600)

    def _config(self, part: str, user: str) -> Path:
        made = self.folder / f"{part}.toml"
        made.write_text(
            f'cluster = "{CLUSTER}"\npreset = "drill"\n[store]\nendpoints = ["{self.etcd.endpoint}"]\n'
            f'ca_file = "{self.authority.ca_file}"\ncert_file = "{self.cert_file}"\nkey_file = "{self.key_file}"\n'
            f'user = "{user}"\npassword_file = "{self.passwords}/{user}"\ntimeout_s = 5.0\n'
            f'[probe]\ntoken_file = "{self.folder}/probe"\n'
            f'[http]\ncert_file = "{self.cert_file}"\nkey_file = "{self.key_file}"\n'
            f'tokens_file = "{self.folder}/tokens"\ntoken_file = "{self.folder}/reads"\n'
            f'ca_file = "{self.authority.ca_file}"\n'
            f'[monitor]\nlisten = "127.0.0.1:{self.port}"\n'
            f'[agent]\nnode = "n1"\nrun_dir = "{self.folder}/run"\nlisten = "127.0.0.1:{self.agent_port}"\n'
            f'[[webhook.targets]]\nname = "pager"\nurl = "https://127.0.0.1:9/x"\nsecret_file = "{self.folder}/hook"\n'
        )
        return made

    def start(self, part: str) -> "subprocess.Popen[bytes]":
        with open(self.folder / f"{part}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "rankpulse.cli.main", part, "--config", str(self.configs[part])],
                stderr=log, stdout=log, cwd="/",
            )  # fmt: skip

    def ask(self, url: str, token: str = "", body: Any = None) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = json.dumps(body).encode() if body is not None else None
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers), context=context, timeout=20) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def act(self, token: str, **body: Any) -> tuple[int, str]:
        return self.ask(f"{self.url}/act", token, {"reason": "planted reason", **body})

    async def command(self, *args: str) -> str:
        argv = [*args, "--config", str(self.configs["operator"])]
        done = await asyncio.to_thread(CliRunner().invoke, app, argv)
        return str(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    authority = Authority(folder, "locked")
    with EmbeddedEtcd(tls=ServerTls(*authority.issue("server"), authority.ca_file)) as etcd:
        made = Locked(folder, etcd, authority)
        parts = [made.start(part) for part in ("monitor", "agent")]
        made.pids = [part.pid for part in parts]
        try:
            eventually_sync(lambda: _up(made), 60, "a leader that has heard of the node")
            yield made
        finally:
            for part in parts:
                part.terminate()
            for part in parts:
                part.wait(timeout=20)


def _up(locked: Locked) -> bool:
    try:
        status, text = locked.ask(f"{locked.url}/state", SECRETS["reads"])
    except OSError:
        return False
    state = json.loads(text) if status == 200 else {}
    return bool(state.get("leads") and state["nodes"])


async def held(locked: Locked, kind: type[Any], key: str) -> Any:
    store = EtcdStore(locked.store("rankpulse.prod.reader"))
    try:
        item = await store.get(key)
        return codec.decode(kind, item.value) if item else None
    finally:
        await store.close()


async def test_who_may_act_acts_in_his_name_and_nobody_else_does(locked: Locked) -> None:
    body = {"do": "cordon", "node": "n1"}
    assert locked.act("", **body)[0] == 401
    assert locked.act(SECRETS["wrong"], **body)[0] == 401
    assert locked.act(SECRETS["reads"], **body)[0] == 403
    assert await held(locked, Cordon, KEYS.cordon("n1")) is None

    status, said = locked.act(SECRETS["acts"], **body)
    assert (status, "takes part in no further round" in said) == (200, True), said
    cordon = await held(locked, Cordon, KEYS.cordon("n1"))
    assert (cordon.author, cordon.reason, cordon.owner) == ("ann", "planted reason", "person")
    assert locked.act(SECRETS["acts"], **body)[0] == 409
    assert locked.act(SECRETS["acts"], do="uncordon", node="n1")[0] == 200
    assert await held(locked, Cordon, KEYS.cordon("n1")) is None

    assert locked.act(SECRETS["acts"], do="arm")[0] == 200
    arm = await held(locked, Arm, KEYS.arm())
    assert (arm.armed, arm.author) == (True, "ann")
    assert locked.act(SECRETS["acts"], do="disarm")[0] == 200

    store = EtcdStore(locked.store("rankpulse.prod.monitor"))
    run = RunState(run_uid="r-1", run_id="train", round=1, outcome="running", reason="", at=0.0)
    await store.put(KEYS.run_state("r-1"), codec.encode(run))
    await store.close()
    assert locked.act(SECRETS["acts"], do="pause", run="r-1")[0] == 200
    assert (await held(locked, RunMode, KEYS.run_mode("r-1"))).author == "ann"
    assert locked.act(SECRETS["acts"], do="resume", run="r-1")[0] == 200
    assert locked.act(SECRETS["acts"], do="restart", run="none")[0] == 409

    metrics = locked.ask(f"{locked.url}/metrics", SECRETS["reads"])[1]
    assert 'rankpulse_monitor_http_refused_total{why="token"} 2.0' in metrics
    assert 'rankpulse_monitor_http_refused_total{why="role"} 1.0' in metrics
    assert 'rankpulse_monitor_http_acts_total{act="cordon",result="done"} 1.0' in metrics
    log = (locked.folder / "monitor.log").read_text()
    assert "asked over HTTP by ann" in log
    assert "refused POST /act from 127.0.0.1" in log


async def test_no_secret_in_logs_metrics_state_records_commands_or_process_lists(locked: Locked) -> None:
    for url in (locked.url, locked.agent_url):
        assert locked.ask(f"{url}/metrics", SECRETS["wrong"])[0] == 401
    assert "n1" in await locked.command("status")
    shown = {
        name: locked.ask(url + path, SECRETS["reads"])
        for name, url, path in (
            ("the state", locked.url, "/state"), ("the page", locked.url, "/"), ("a node", locked.url, "/nodes/n1"),
            ("metrics of the monitor", locked.url, "/metrics"), ("readiness", locked.url, "/readyz"),
            ("metrics of the agent", locked.agent_url, "/metrics"), ("health", locked.agent_url, "/healthz"),
        )
    }  # fmt: skip
    assert {status for status, _ in shown.values()} == {200}
    texts = {name: text for name, (_, text) in shown.items()}
    for command in ("status", "config", "doctor", "incidents"):
        texts[f"rankpulse {command}"] = await locked.command(command)
    for part, pid in zip(("monitor", "agent"), locked.pids, strict=True):
        texts[f"the log of the {part}"] = (locked.folder / f"{part}.log").read_text()
        for name in ("cmdline", "environ"):
            texts[f"{name} of the {part}"] = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    store = EtcdStore(locked.store("rankpulse.prod.reader"))
    records = (await store.list(KEYS.prefix)).items
    await store.close()
    texts["the store"] = "\n".join(f"{item.key} {item.value.decode(errors='replace')}" for item in records)
    assert {parsed.kind for item in records if (parsed := KEYS.parse(item.key))} >= {Beat, Leader}
    texts["the etcd's log"] = locked.etcd.log_file.read_text()

    planted = {**SECRETS, **{path.name: path.read_text().strip() for path in locked.passwords.iterdir()}}
    planted["key"] = Path(locked.key_file).read_text().splitlines()[1]
    found = [(what, where) for what, secret in planted.items() for where, text in texts.items() if secret in text]
    assert found == []
    assert "refused" in texts["the log of the agent"], "there was something to say"
    for name in ("tokens", "probe", "hook"):
        assert os.stat(locked.folder / name).st_mode & 0o077 == 0
