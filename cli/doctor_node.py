"""What of this machine rankpulse needs: its GPUs' driver, its clock, the rights of who asks, the agent's socket."""

import os
import stat

from rankpulse.agent import gpu_devices, host_watch, proc
from rankpulse.cli import gpu
from rankpulse.cli.doctor_check import FAIL, OK, WARN, Check
from rankpulse.core.settings import Settings

PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
CLOCK_ERROR_S = 1.0


async def gpus(settings: Settings) -> Check:
    """The GPUs as the agent of this node knows them, else by a look: a driver that hangs costs its deadline."""
    if not (gpu_devices.there() or settings.preflight.gpus):
        return Check("gpu", OK, "no NVIDIA GPU on this machine")
    known = await gpu.looked(settings, ask_agent=True, processes=False)
    count, wanted = len(known["gpus"]), settings.preflight.gpus
    if count < wanted:
        return Check("gpu", FAIL, f"{count} GPUs are seen, {wanted} must be there", "see `rankpulse gpu` and dmesg")
    if not count:
        why = "; ".join(known["lacks"].values()) or "NVML lists none"
        return Check("gpu", FAIL, f"there are GPU devices, but {why}", "install the driver's NVML, and nvidia-ml-py")
    if gpu.bad(known):
        return Check("gpu", FAIL, f"of {count} GPUs one, or the machine around them, is ill", "see `rankpulse gpu`")
    lacks = f"; not to be had: {', '.join(sorted(known['lacks']))}" if known["lacks"] else ""
    return Check("gpu", OK, f"{count} GPUs, driver {known['driver'] or 'unknown'}{lacks}")


def clock() -> Check:
    """By the kernel's own estimate. No decision reads a wall clock of another machine; people and reports do."""
    error_s = host_watch.clock_error_s()
    if error_s is None:
        return Check("clock here", WARN, "nobody keeps this machine's clock in time", "run chrony or systemd-timesyncd")
    if error_s > CLOCK_ERROR_S:
        return Check("clock here", WARN, f"it may be {error_s:.1f} s off", "see `chronyc tracking`")
    return Check("clock here", OK, f"at most {1000 * error_s:.0f} ms off")


def rights() -> Check:
    """Of who asks; the agent may be somebody else."""
    if trouble := proc.pidfd_problem():
        return Check("rights", FAIL, trouble, "rankpulse needs Linux 5.3 or later, and a container that allows pidfd")
    if not proc.sees_all_processes():
        text = "/proc hides processes of others: an agent of this user would see its own jobs only"
        return Check("rights", WARN, text, "run the agent as root, or mount /proc without hidepid")
    if os.geteuid():
        text = f"user {os.geteuid()}: an agent of this user serves, and can end, its own jobs only"
        return Check("rights", WARN, text, "run the agent as root to serve the jobs of all users")
    return Check("rights", OK, f"root: all users' jobs; {_stacks()}")


def _stacks() -> str:
    try:
        with open(PTRACE_SCOPE) as file:
            scope = file.read(8).strip()
    except OSError:
        return "stacks of jobs can be read"
    return "stacks of jobs cannot be read (ptrace_scope 3)" if scope == "3" else "stacks of jobs can be read"


def socket(run_dir: str) -> Check:
    """The run directory is made like /tmp: everybody may add, nobody may touch another's."""
    path = os.path.join(run_dir, "agent.sock")
    try:
        folder, line = os.lstat(run_dir), os.lstat(path)
    except FileNotFoundError:
        return Check("sockets", OK, "no agent has been here yet")
    except OSError as error:
        return Check("sockets", FAIL, f"{path}: {error.strerror}", "make it readable for those who run jobs")
    if not stat.S_ISSOCK(line.st_mode):
        return Check("sockets", FAIL, f"{path} is no socket", "remove it, and start the agent anew")
    if folder.st_mode & 0o002 and not folder.st_mode & stat.S_ISVTX:
        text = f"anybody may replace the agent's socket: {run_dir} has mode {stat.S_IMODE(folder.st_mode):o}"
        return Check("sockets", FAIL, text, f"chmod 1777 {run_dir}")
    if line.st_uid not in (0, folder.st_uid):
        text = f"{path} belongs to user {line.st_uid}, the directory to {folder.st_uid}"
        return Check("sockets", FAIL, text, "stop what serves it, remove it, and start the agent anew")
    return Check("sockets", OK, f"{path}, mode {stat.S_IMODE(line.st_mode):o}")
