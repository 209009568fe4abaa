"""A real Slurm on this one machine, for drills: munged, slurmctld and slurmd with files and ports of their own.

Needs root and Debian's packages slurm-wlm and munge. What runs elsewhere on the machine is left alone.
"""

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from support import eventually_sync

PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "sbatch", "scancel")
CONF = """
ClusterName=drill
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
SlurmctldPort={ctld}
SlurmdPort={d}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=requeue_setup_env_fail
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
MinJobAge=300
KillWait=2
{more}
NodeName={host} CPUs={cpus} State=UNKNOWN
NodeName=elsewhere NodeAddr=127.0.0.1 Port=9 CPUs=1 State=DOWN
PartitionName=drill Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why no Slurm can be started here, or ""."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    return f"needs Debian's slurm-wlm and munge: {', '.join(absent)} not found" if absent else ""


class SlurmCluster:
    """`environ`: what its commands need. Use it as a context."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder, self._started = folder, list[subprocess.Popen[bytes]]()
        self.host = socket.gethostname().split(".")[0]
        self.conf = folder / "slurm.conf"
        self.environ = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        ctld, d = _free_port(), _free_port()
        cpus = os.cpu_count() or 1
        self.conf.write_text(
            CONF.format(host=self.host, folder=folder, ctld=ctld, d=d, cpus=cpus, more=more), encoding="utf-8"
        )

    def __enter__(self) -> "SlurmCluster":
        for name in ("state", "spool"):
            (self.folder / name).mkdir(mode=0o755)
        os.chmod(self.folder, 0o755)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        munge = [f"--{what}={self.folder}/munge.{end}" for what, end in _MUNGE]
        self._start("munged", "--foreground", "--force", *munge)
        eventually_sync((self.folder / "munge.socket").exists, 10, "munged")
        self._start("slurmctld", "-D", "-f", str(self.conf))
        self._start("slurmd", "-D", "-f", str(self.conf), "-N", self.host)
        eventually_sync(lambda: "idle" in self.run("sinfo", "-h", "-o", "%t"), 60, "a node that is idle")
        return self

    def __exit__(self, *_: object) -> None:
        self.run("scancel", "--full", "--signal=KILL", f"--nodelist={self.host}")
        self.run("scancel", f"--nodelist={self.host}")
        with suppress(AssertionError):
            eventually_sync(lambda: not self.run("squeue", "-h", "-t", "R,CG", "-o", "%i").strip(), 20, "the last job")
        for process in reversed(self._started):
            process.terminate()
        for process in reversed(self._started):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, *argv: str) -> str:
        """What a command of Slurm says."""
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    def _start(self, *argv: str) -> None:
        with open(self.folder / f"{argv[0]}.out", "ab") as log:
            self._started.append(
                subprocess.Popen(argv, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )


_MUNGE = (
    ("key-file", "key"),
    ("socket", "socket"),
    ("pid-file", "pid"),
    ("log-file", "log"),
    ("seed-file", "seed"),
)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])
