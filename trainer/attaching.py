"""`attach()`: find a place, say who we are, and hand out the process's one pulse. The shell around the rest.

Whatever goes wrong here costs the pulse and one line on stderr, never the training.
"""

import atexit
import os
import sys
from typing import Any

from rankpulse.trainer import interfaces, launch, place
from rankpulse.trainer.pulse import Pulse


class _Process:
    """What this process has attached: at most one pulse, and the exit and fork hooks, set once."""

    pulse: Pulse | None = None
    socket: str = ""
    hooked: bool = False
    counting: str = ""  # "ok" once the optimizer hook is set, or why it could not be


def attach() -> Pulse:
    """The pulse of this process: made at the first call, the same one afterwards. Never raises.

    Without a place to write (no permission, read-only, full) the pulse does nothing and one warning goes to stderr.
    Call it after `import torch` (then optimizer steps are counted), and before or after `init_process_group`.
    """
    try:
        if _Process.pulse is None:
            if _in_spawned_import():
                # A spawned child (a DataLoader worker, say) runs the main script's top level first: not a rank yet.
                return Pulse(None)
            _Process.pulse = _first_attach()
        elif not _Process.pulse.live:
            _Process.pulse.reopen()
    except Exception as error:
        _say(f"no progress will be reported: {_reason(error)}")
        _Process.pulse = Pulse(None)
    return _Process.pulse


def attached() -> Pulse | None:
    """The pulse of this process if there is one already. Attaches nothing."""
    return _Process.pulse


def _first_attach() -> Pulse:
    base = place.run_dir(os.environ)
    dir_fd, path = place.own_dir(base, os.geteuid())
    try:
        place.sweep(dir_fd)
        return _placed(dir_fd, f"{path}/{os.getpid()}-{os.urandom(4).hex()}")
    finally:
        os.close(dir_fd)


def _placed(dir_fd: int, stem: str) -> Pulse:
    """The pulse with a slot at `stem`.slot and, where torch has one, its server at `stem`.sock."""
    name = f"{os.path.basename(stem)}.slot"
    who = _who(interfaces.find_torch(os.environ), f"{stem}.sock")  # may import torch: no half slot stands meanwhile
    shared = place.create(dir_fd, name)
    try:
        pulse = Pulse(shared)
        place.publish(shared, launch.fitted(who))
    except Exception:
        os.unlink(name, dir_fd=dir_fd)  # not half a slot, which an agent would look at again and again
        raise
    _Process.socket = who["server"]
    _set_hooks()
    restartable = who["capabilities"].get("restartable", "ok")
    if restartable != "ok" and who["local_rank"] == 0:
        _say(f"restarts will fail: {restartable}.")
    return pulse


def _capabilities(torch: Any, socket: str) -> dict[str, str]:
    """What torch lets us do: name -> "ok" or why not."""
    if _Process.counting != "ok":
        _Process.counting = interfaces.count_optimizer_steps(torch, _optimizer_stepped)
    found = {"auto_step": _Process.counting, "worker_server": interfaces.open_worker_server(torch, socket)}
    restartable = launch.restartable(os.environ)
    return found if restartable is None else {**found, "restartable": restartable}


def _who(torch: Any, socket: str) -> dict[str, Any]:
    capabilities = _capabilities(torch, socket)
    return {
        **launch.identity(os.environ, getattr(torch, "distributed", None)),
        "pid": os.getpid(),
        "python": sys.version.split()[0],
        "torch": interfaces.version(torch),
        "server": socket if capabilities["worker_server"] == "ok" else "",
        "capabilities": capabilities,
    }


@interfaces.untraced
def _optimizer_stepped(optimizer: object, args: object, kwargs: object) -> None:
    """Registered with torch once; the pulse may change (a forked child attaches anew)."""
    if _Process.pulse is not None:
        _Process.pulse.optimizer_stepped(optimizer)


def _in_spawned_import() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(getattr(process.current_process(), "_inheriting", False))


def _set_hooks() -> None:
    if not _Process.hooked:
        _Process.hooked = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_in_forked_child)


def _at_exit() -> None:
    """The interpreter ends: say how. `sys.last_*` is set by now if an exception went uncaught."""
    pulse = _Process.pulse
    if pulse is None:
        return
    try:
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None) or getattr(sys, "last_type", None)
        pulse.finish(error, interfaces.last_collective(sys.modules.get("torch")) if error is not None else "")
        if _Process.socket:
            os.unlink(_Process.socket)  # nobody asks any more
            interfaces.let_server_finish(_Process.socket)
    except Exception:  # at the very end there is nobody left to tell
        return


def _in_forked_child() -> None:
    """The slot and the server are the parent's. A child that is a rank itself calls attach() and gets its own."""
    if _Process.pulse is not None:
        _Process.pulse.forsake()
    _Process.pulse, _Process.socket = None, ""


def _reason(error: Exception) -> str:
    if isinstance(error, place.Unsafe):
        return f"{error}."
    if isinstance(error, OSError):
        return f"{error}. Set RANKPULSE_DIR to a directory on this machine that you can write."
    return f"{type(error).__name__}: {error}. Training goes on; please report this as a bug of rankpulse."


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"rankpulse: {text}\n")
    except Exception:  # stderr may be closed or absent
        return
