"""torch's interfaces that are not promised to stay: each is asked for here, and each may be missing.

Every function returns "ok" or why the capability is missing. See docs/torch-interfaces.md.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

SOCKET_PATH_MAX = 107  # sun_path of Linux, less the closing zero
PLACE_CHARS = 120
Function = TypeVar("Function", bound=Callable[..., object])
Hook = Callable[[object, object, object], None]


def find_torch(environ: Mapping[str, str]) -> Any:
    """torch if the program has imported it, or will in any case (it was started by torchelastic); else None."""
    torch = sys.modules.get("torch")
    if torch is None and "TORCHELASTIC_RUN_ID" in environ:
        try:
            torch = importlib.import_module("torch")
        except Exception:  # a broken torch is for the program to meet, not for us to report first
            return None
    return torch


def version(torch: Any) -> str:
    """torch's version, "" without torch."""
    try:
        return str(getattr(torch, "__version__", ""))[:40]
    except Exception:
        return ""


def untraced(function: Function) -> Function:
    """Mark `function` as torch.compiler.disable would, which cannot be asked without importing the compiler.

    torch.compile then calls it instead of tracing into it, which would warn at the first call it cannot trace.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = "rankpulse reports progress"  # type: ignore[attr-defined]
    return function


def count_optimizer_steps(torch: Any, hook: Hook) -> str:
    """Have `hook(optimizer, args, kwargs)` called after each step of any optimizer.

    It is never taken back: that could happen in the middle of torch's walk over its hooks, which would then raise.
    """
    if torch is None:
        return "torch was not imported before attach()"
    try:
        register = importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook
    except (ImportError, AttributeError):
        return "this torch has no register_optimizer_step_post_hook"
    try:
        register(hook)
    except Exception as error:
        return f"register_optimizer_step_post_hook refused: {type(error).__name__}"
    return "ok"


def open_worker_server(torch: Any, path: str) -> str:
    """Open torch's worker server (C++ threads, HTTP) on the unix socket `path`."""
    if torch is None:
        return "torch was not imported before attach()"
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        return f"the socket path is longer than {SOCKET_PATH_MAX} bytes: choose a shorter RANKPULSE_DIR"
    try:
        server = importlib.import_module("torch._C._distributed_c10d")._WorkerServer(path)
    except (ImportError, AttributeError):
        return "this torch has no torch._C._distributed_c10d._WorkerServer"
    except Exception as error:
        return f"_WorkerServer refused: {type(error).__name__}: {error}"
    return _keep_for_ever(server)


def register_handler(torch: Any, name: str, handle: Callable[[Any, Any], None]) -> str:
    """Have `handle(request, response)` called for `POST /handler/<name>` of the worker server. It stays for good."""
    if torch is None:
        return "torch is not imported"
    try:
        importlib.import_module("torch._C._distributed_c10d")._register_handler(name, handle)
        _keep_for_ever(handle)
    except (ImportError, AttributeError):
        return "this torch has no torch._C._distributed_c10d._register_handler"
    except Exception as error:
        return f"_register_handler refused: {type(error).__name__}: {error}"
    return "ok"


def let_server_finish(path: str, patience_s: float = 0.5) -> None:
    """Before the interpreter ends: let requests that reached the server on `path` be answered. Nobody asks: no wait.

    A handler that gets Python's lock only while the interpreter ends is torn out of C++ code that does not stand it:
    the process would abort.
    """
    until = time.monotonic() + patience_s
    while _sockets_at(path) > 1 and time.monotonic() < until:
        time.sleep(0.005)


def last_collective(torch: Any) -> str:
    """Which collective this process called last, by torch's flight recorder: group, number, operation, sizes and type,
    as JSON; "" when that is not known. For a process that ends because of an error, and for one without a GPU: with
    one, the answer may wait for the device.
    """
    try:
        if torch is None or torch.cuda.is_initialized():
            return ""
        told = importlib.import_module("torch._C._distributed_c10d")._dump_fr_trace_json(True, False)
        entry = json.loads(told)["entries"][-1]
        what = (entry["process_group"][0], entry["collective_seq_id"], entry["profiling_name"])
        place = json.dumps([*what, entry["input_sizes"], entry["input_dtypes"]], separators=(",", ":"))
        return place if len(place) <= PLACE_CHARS and not entry["is_p2p"] else ""
    except Exception:  # an interface that is not there, or a recorder that is not on
        return ""


def _sockets_at(path: str) -> int:
    """How many sockets have that address: the listening one, and one for each request under way."""
    name = b" " + os.fsencode(path) + b"\n"
    try:
        with open("/proc/net/unix", "rb") as table:
            return sum(line.endswith(name) for line in table)
    except OSError:
        return 0


def _keep_for_ever(held: object) -> str:
    """Never destroy the server: its destructor joins threads that a forked child has not (it aborts there), and at
    the interpreter's end it would wait, with the interpreter locked, for handlers that want the lock. Nor a handler:
    C++ lets go of it after the interpreter's end, and the process would abort."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
    return "ok"
