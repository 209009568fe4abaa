"""What a line of text tells: of a log, an exception, the kernel. One table, the first pattern that fits decides.

A line is a sign of something, never the proof: most lines that a broken job leaves are those of its victims.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

XID: Final = "xid"
FABRIC: Final = "fabric"  # of a switch between GPUs
GPU_FAILED: Final = "gpu_failed"  # the driver cannot bring it up, or hears its firmware no more
PANIC: Final = "panic"
DRIVER_MISMATCH: Final = "driver_mismatch"
OOM_HOST: Final = "oom_host"
OOM_GPU: Final = "oom_gpu"
ECC: Final = "ecc"
GPU_LOST: Final = "gpu_lost"
CONTAINED: Final = "contained"  # an error of the memory or of the fabric that ended this context alone
NVLINK: Final = "nvlink"
ILLEGAL_INSTRUCTION: Final = "illegal_instruction"
CUDA: Final = "cuda"  # other errors of the device
BUS_ERROR: Final = "bus_error"
NUMERICAL: Final = "numerical"
MISMATCH: Final = "mismatch"
TIMED_OUT: Final = "timed_out"  # the watchdog of a process group ended its wait: a victim, with a position
WATCHDOG_STUCK: Final = "watchdog_stuck"  # a watchdog that watches a watchdog
RDZV_CLOSED: Final = "rdzv_closed"
RDZV_ROUND: Final = "rdzv_round"
IB_RETRY: Final = "ib_retry"
IB_FLUSHED: Final = "ib_flushed"
LINK_DOWN: Final = "link_down"
UNRESOLVED: Final = "unresolved"
PORT_TAKEN: Final = "port_taken"
STORE: Final = "store"
STOPPED: Final = "stopped"
PREEMPTED: Final = "preempted"
LOADER: Final = "loader"
STORAGE: Final = "storage"
STUCK_TASK: Final = "stuck_task"  # the kernel: blocked for more than ... seconds
VICTIM: Final = "victim"
ERROR: Final = "error"  # an exception of its own
NOTHING: Final = ""

_TABLE: Final = tuple(
    (sign, re.compile(pattern, re.IGNORECASE))
    for sign, pattern in (
        (NOTHING, r"^(?!.*kernel:).*[\w-]+\[\d+\]: .*\bxid\b|\bPCIe Bus Error\b|non-fatal"),
        (FABRIC, r"\bSXid\b.*\bfatal|nvswitch.*\bfatal"),
        (XID, r"NVRM: Xid|(?-i:\b(Xid|XID)\b)[^0-9#]{0,40}[\d#]"),
        (GPU_FAILED, r"RmInitAdapter failed|probe routine failed|kgspIsHeartbeatTimedOut|PMU has halted"
         r"|GSP.{0,20}timed? ?out|nvAssert.{0,60}RESET_REQUIRED"),
        (PANIC, r"kernel panic|machine check.{0,30}(fatal|exception)|power (loss|fail|off)|Hardware Error.{0,40}fatal"),
        (STUCK_TASK, r"blocked for more than \d+ sec|hung_task|soft lockup|hard lockup|rcu.{0,20}stall"),
        (DRIVER_MISMATCH, r"API mismatch|driver/library version mismatch|kernel module.{0,40}version"),
        (OOM_HOST, r"out of memory: kill|oom-kill|oom_reaper|cgroup out of memory|\bOOMKilled\b|invoked oom"),
        (OOM_GPU, r"CUDA out of memory|OutOfMemoryError|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED"
         r"|GPU.{0,20}out of memory|(HIP|CUDA|device).{0,30}out of memory|out of (GPU|device) memory"),
        (OOM_HOST, r"\bMemoryError\b|cannot allocate memory|can't allocate memory|std::bad_alloc"),
        (NVLINK, r"nvlink.{0,40}(uncorrect|error|fail|fatal|down)|(uncorrect|fatal)\w* nvlink|cudaErrorNvlink"),
        (ECC, r"uncorrect\w*.{0,20}ECC|ECC.{0,20}uncorrect|double.?bit|cudaErrorECC|\berror 214\b|\bcode 214\b"),
        (GPU_LOST, r"fallen off the bus|GPU is lost|unable to determine the device handle|no CUDA-capable device"),
        (CONTAINED, r"contained (memory )?(error|exception)|error.contained|CUDA_ERROR_CONTAINED|cudaErrorContained"
         r"|invalid access of peer GPU memory|uncontained"),
        (ILLEGAL_INSTRUCTION, r"illegal instruction"),
        (BUS_ERROR, r"\bbus error\b|\bSIGBUS\b|insufficient shared memory"),
        (NUMERICAL, r"\b(loss|grad\w*|norm)\b.{0,30}\b(nan|inf)\b|\bnan\b.{0,30}\b(loss|grad)|nan or inf|returned nan"
         r"|(contains|detected|found).{0,12}\b(nan|inf)s?\b|FloatingPointError"),
        (MISMATCH, r"mismatch between collectives|collective.{0,40}(mismatch|do(es)? not match)|CollectiveFingerPrint"),
        (WATCHDOG_STUCK, r"watchdog.{0,60}(stuck|hang|no progress|not respond)|heartbeat ?monitor"
         r"|terminate called.{0,40}heartbeat|possible GIL|GIL or CUDA"),
        (TIMED_OUT, r"watchdog caught|collective operation timeout|ran for \d+ milliseconds|last enqueued"),
        (RDZV_CLOSED, r"RendezvousClosed|rendezvous.{0,30}closed"),
        (RDZV_ROUND, r"(stale|old|wrong|different).{0,20}(rendezvous|round)|RendezvousTimeout|rendezvous.{0,30}time"),
        (IB_RETRY, r"status[= ]+12\b|error 12\b|retry (counter )?exc|RETRY_EXC|retry exceeded"),
        (IB_FLUSHED, r"status[= ]+5\b|WR_FLUSH|work request flushed|\bflushed\b"),
        (LINK_DOWN, r"link (is |went )?down|port.{0,20}\b(down|polling|error)\b|\b(mlx|eth|bond|ib|ens|roce)\w*.{0,30}"
         r"\b(down|polling|flap\w*)\b|lost carrier|no carrier|NETDEV WATCHDOG"),
        (UNRESOLVED, r"name or service not known|name resolution|getaddrinfo|not resolv"
         r"|(cannot|could not|can't|unable to|failed to) resolve|unknown host|nodename nor servname|no such host"
         r"|NXDOMAIN"),
        (PREEMPTED, r"preempt|spot.{0,20}(reclaim|terminat|interrupt)|evict\w*.{0,30}(pod|node|priority)"
         r"|maintenance event|due to time limit|instance.{0,20}(terminat|reclaim)"),
        (STOPPED, r"SIGTERM|SIGINT|signal 15|death signal|SignalException|KeyboardInterrupt|scancel|cancell?ed by"),
        (LOADER, r"DataLoader.{0,40}(worker|timed out|exited|killed)"),
        (STORAGE, r"input/output error|\bEIO\b|stale file handle|\bESTALE\b|no space left|read-only file system"
         r"|disk quota|zero.?(byte|length)|PytorchStream(Reader|Writer)|central directory|file write failed"
         r"|unexpected (EOF|end of)"
         r"|(nfs|lustre|ceph|gpfs|beegfs|fuse|s3|gcs)\b.{0,60}(not responding|time.?d? ?out|evicted|lost|hung|error)"
         r"|(checkpoint|shard|safetensors).{0,60}(corrupt|incomplete|truncat|missing|empty|invalid|not found)"
         r"|(corrupt|incomplete|truncat|empty)\w*.{0,40}(checkpoint|shard|safetensors)|\.tmp\b"),
        (PORT_TAKEN, r"EADDRINUSE|address (is )?already in use|server socket has failed to (listen|bind)"),
        (STORE, r"(TCPStore|c10d store|rendezvous store|\bstore\b|etcd).{0,80}(connect|time.?d? ?out|refused"
         r"|unreach|fail|broken)|(connect|connection|connecting).{0,60}(store|MASTER_ADDR|rendezvous)"
         r"|client socket has (timed out|failed)"),
        (VICTIM, r"connection (closed|reset|refused|was closed|error|lost|aborted)|closed by peer|broken pipe"
         r"|remote process exited|socket (closed|timeout)|peer.{0,40}(closed|reset|died|exited|gone)"
         r"|connectfullmesh|timed? ?out waiting|wait timeout|timed out after|recvvalue|failed to (recv|send)"
         r"|nccl(communicator)?.{0,30}abort|ncclRemoteError|ncclSystemError|remote error|abort(ed)? due to"
         r"|DistBackendError|DistNetworkError|DistStoreError|ConnectionResetError|BrokenPipeError|barrier.{0,20}abort"
         r"|abort.{0,20}barrier|NCCL error|coordination service|lost (the )?connection|ChildFailedError"),
        (ERROR, r"device-side assert"),  # of the program's own checks: an index out of range, say
        (CUDA, r"CUDA (error|driver error|exception)|cudaError|CUDNN_STATUS|CUBLAS_STATUS|CUDA_ERROR"
         r"|device.{0,20}(fault|exception)|HIP error"),
        (ERROR, r"\b\w*(Error|Exception|Assert\w*)\b|\bassert|traceback|segmentation fault|core dumped|panic"),
    )
)  # fmt: skip
# what every pattern has one of: most lines of a log have none, and are done with at once
_STEMS: Final = """
    xid nvrm nvswitch kgsp gsp panic machine power hardware blocked hung lockup stall mismatch module memory oom
    alloc nvlink ecc 214 double bus lost handle cuda contained peer illegal collective watchdog heartbeat gil
    milliseconds enqueued rendezvous round status retry flush down polling carrier port flap resol getaddrinfo
    unknown name nxdomain such preempt spot evict maintenance limit instance sigterm sigint signal interrupt cancel
    dataloader i/o eio estale stale space read-only quota zero pytorchstream central eof unexpected nfs lustre ceph
    gpfs beegfs fuse s3 gcs checkpoint shard safetensors .tmp store etcd master_addr timed timeout connect closed
    reset refused pipe socket abort nccl dist remote failed recv coordination cudnn cublas device hip error
    exception assert traceback fault dumped coredump 12 lapse eaddrinuse address writer write
""".split()  # noqa: SIM905
_NO_NUMBER = re.compile(r"\b(nan|inf)s?\b|floatingpoint")
_CODE = re.compile(r"(?:Xid|XID)\b(?:\s*\((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\))?\D{0,20}?(\d+)")
_GPU = re.compile(r"\bGPU\s?#?(\d+)\b")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
_ANY_NUMBER = re.compile(r"(?<![\d])(?!(?:2|5|12|15|214)\b)\d+")  # the patterns know these
_PATH = re.compile(r"(/[\w.+-]+){2,}")
FAULT_MAX = 160


class Xid(NamedTuple):
    code: int
    pci: str = ""
    gpu: int | None = None  # where the line itself names one


def sign(text: str) -> str:
    """What a line is a sign of, "" when of nothing."""
    return _sign(_ANY_NUMBER.sub("0", text)) if text else NOTHING


@lru_cache(maxsize=16_384)
def _sign(text: str) -> str:
    """Thousands of ranks say the same, but for numbers that mean nothing here."""
    low = text.lower()
    if not any(stem in low for stem in _STEMS) and not _NO_NUMBER.search(low):
        return NOTHING
    return next((name for name, pattern in _TABLE if pattern.search(text)), NOTHING)


def xid(text: str) -> Xid | None:
    found = _CODE.search(text)
    named = _GPU.search(text)
    gpu = int(named.group(1)) if named else None
    return Xid(int(found.group(2)), (found.group(1) or "").lower().removesuffix("."), gpu) if found else None


def bare(text: str) -> str:
    """A text without what differs between two of the same: numbers, addresses, paths."""
    return _NUMBER.sub("#", _PATH.sub("PATH", text)).strip()[:FAULT_MAX]
