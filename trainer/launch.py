"""Who this process is in its job, read from the launcher's environment. Pure, and never an error.

A number that cannot be read is -1: unknown, which is not the same as 0.
"""

from collections.abc import Mapping
from typing import Any

from rankpulse.core import slot

UNKNOWN = -1
LABEL_BYTES = 256
LARGEST = 2**31 - 1
_NOT_SHARED = "1"


def identity(environ: Mapping[str, str], torch_dist: Any = None) -> dict[str, Any]:
    """The launch as the process sees it, for the slot's identity.

    Keys: run_id, rank, local_rank, world_size, node_rank, master ("addr:port" or ""), slurm ("job.step.restart" or
    ""), elastic, restart_count, run_uid, round, source. The first launcher that left its marks wins: torchelastic,
    then RANK and WORLD_SIZE (accelerate, DeepSpeed, Ray), then a Slurm step, then an initialised `torch_dist`
    (torch.distributed), else a single process.
    """
    return {
        "run_id": _text(environ.get("TORCHELASTIC_RUN_ID", environ.get("SLURM_JOB_ID", "")), LABEL_BYTES),
        **_ranks(environ, torch_dist),
        "master": _master(environ),
        "slurm": _slurm(environ),
        "elastic": "TORCHELASTIC_RUN_ID" in environ,
        "restart_count": _number(environ, "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"),
        "run_uid": _text(environ.get("RANKPULSE_RUN_UID", ""), 128),
        "round": _number(environ, "RANKPULSE_ROUND"),
    }


def restartable(environ: Mapping[str, str]) -> str | None:
    """Whether torchelastic's restarts can work: "ok", what to do about it, or None when there are none to speak of.

    By default the workers of all rounds share one TCPStore; after a restart they read the addresses of the dead round
    from it, and every restart fails. A rendezvous that names its round (RANKPULSE_ROUND) opens a new store each time.
    """
    if "TORCHELASTIC_RUN_ID" not in environ or _number(environ, "TORCHELASTIC_MAX_RESTARTS") <= 0:
        return None
    shared = environ.get("TORCHELASTIC_USE_AGENT_STORE", "True") == "True"
    if not shared or "RANKPULSE_ROUND" in environ or environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == _NOT_SHARED:
        return "ok"
    return (
        "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where torchrun is started: otherwise restarted workers read the "
        "addresses of the dead round and every restart fails"
    )


def fitted(value: dict[str, Any], limit: int = slot.IDENTITY_MAX) -> bytes:
    """The identity as bytes for the slot. What is too long is cut: reasons first, then names."""
    value = dict(value)
    for chars in (120, 60, 20, 0):
        value["capabilities"] = {name: reason[:chars] for name, reason in value.get("capabilities", {}).items()}
        try:
            return slot.pack_json(value, limit)
        except ValueError:
            pass
    short = {key: what[:40] if isinstance(what, str) and key != "server" else what for key, what in value.items()}
    return slot.pack_json({**short, "capabilities": {}}, limit)


def _ranks(environ: Mapping[str, str], torch_dist: Any) -> dict[str, Any]:
    elastic = "TORCHELASTIC_RUN_ID" in environ
    if elastic or ("RANK" in environ and "WORLD_SIZE" in environ):
        return {
            "rank": _number(environ, "RANK"),
            "local_rank": _number(environ, "LOCAL_RANK"),
            "world_size": _number(environ, "WORLD_SIZE"),
            "node_rank": _number(environ, "GROUP_RANK", "NODE_RANK"),
            "source": "torchelastic" if elastic else "env",
        }
    # A batch script has SLURM_PROCID and SLURM_NTASKS too, though it is one process: only a step has tasks.
    if "SLURM_PROCID" in environ and ("SLURM_STEP_ID" in environ or "SLURM_STEPID" in environ):
        return {
            "rank": _number(environ, "SLURM_PROCID"),
            "local_rank": _number(environ, "SLURM_LOCALID"),
            "world_size": _number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
            "node_rank": _number(environ, "SLURM_NODEID"),
            "source": "slurm",
        }
    return _initialised(torch_dist) or {
        "rank": 0,
        "local_rank": 0,
        "world_size": 1,
        "node_rank": 0,
        "source": "single",
    }


def _initialised(torch_dist: Any) -> dict[str, Any] | None:
    """The ranks of a process group that the program set up without any environment."""
    try:
        if torch_dist is None or not torch_dist.is_available() or not torch_dist.is_initialized():
            return None
        rank, world = int(torch_dist.get_rank()), int(torch_dist.get_world_size())
    except Exception:  # another torch than we know
        return None
    return {"rank": rank, "local_rank": UNKNOWN, "world_size": world, "node_rank": UNKNOWN, "source": "torch"}


def _master(environ: Mapping[str, str]) -> str:
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    return f"{_text(address, LABEL_BYTES)}:{_text(port, 5)}" if address and port else ""


def _slurm(environ: Mapping[str, str]) -> str:
    job = environ.get("SLURM_JOB_ID", environ.get("SLURM_JOBID", ""))
    if not job:
        return ""
    step = environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))
    return ".".join(_text(part, 24) for part in (job, step, environ.get("SLURM_RESTART_COUNT", "0")))


def _number(environ: Mapping[str, str], *names: str) -> int:
    """The first of the variables that is set, as a number from 0 to 2**31 - 1, else -1."""
    text = next((environ[name] for name in names if name in environ), "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return UNKNOWN
    return int(text) if int(text) <= LARGEST else UNKNOWN


def _text(value: str, limit: int) -> str:
    """`value` in at most `limit` bytes of sound UTF-8: an environment may hold any bytes."""
    return value.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
