"""What a rank is doing, by its stack; and all ranks by where they are, those that are elsewhere first.

Read from the innermost frame outwards: the first frame that means something decides. Frames of waiting as such (a
lock, a queue, a socket) mean what called them.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from rankpulse.core.snapshot import Rank

COLLECTIVE: Final = "collective"
DEVICE: Final = "device"  # the host waits for its GPU
LOADER: Final = "loader"
STORAGE: Final = "storage"
COMPILE: Final = "compile"
LOCK: Final = "lock"
RENDEZVOUS: Final = "rendezvous"  # waits for the store of the job
EVALUATION: Final = "evaluation"
SLEEP: Final = "sleep"
PIPE: Final = "pipe"
USER: Final = "user"
UNSEEN: Final = ""

IN_WORDS: Final = {
    COLLECTIVE: "in a collective",
    DEVICE: "waiting for its GPU",
    LOADER: "waiting for its data loader",
    STORAGE: "reading or writing files",
    COMPILE: "compiling",
    LOCK: "waiting for a lock",
    RENDEZVOUS: "waiting for the job's store",
    EVALUATION: "in its evaluation",
    SLEEP: "sleeping",
    PIPE: "writing to a pipe that nobody reads",
    USER: "in the program's own code",
    UNSEEN: "unseen",
}

_TABLE: Final = tuple(
    (what, re.compile(pattern, re.IGNORECASE))
    for what, pattern in (
        (LOADER, r"data_?loader|\bloader\b|_next_data|_try_get_data|_get_data\b|next_batch|get_batch|data_iter"
         r"|\bcollate|dataset"
         r"|_utils/(fetch|worker)|pin_memory\.py|webdataset|ffrecord|(next|get)_data\b|prefetch"),
        (RENDEZVOUS, r"rendezvous|tcpstore|prefixstore|\bstore[._ ](get|wait)|store\.py|init_process_group"
         r"|_store_based_barrier|new_group"),
        (COLLECTIVE, r"all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all|\bbarrier\b|\bi?send\b|\bi?recv\b"
         r"|batch_isend_irecv|send_forward|recv_forward|send_backward|recv_backward|p2p_communication|\breduce\b"
         r"|distributed_c10d|functional_collectives|ProcessGroup|nccl|gloo|wait_tensor|work\.wait|_sync_params"
         r"|reducer|\bgather\b|\bscatter\b|monitored_barrier"),
        (DEVICE, r"cuda(Stream|Event|Device)?_?synchronize|\bsynchronize\b(?!\.py)|_local_scalar_dense|\bitem\b"
         r"|cuCtxSync|cuStream"
         r"|cuEvent|cuMemcpy|cudaMemcpy|\bto\b.{0,20}\bcpu\b|\bcuda_sync"),
        (COMPILE, r"_inductor|_dynamo|triton.{0,30}compil|\bcompile\w*\b|nvcc|ninja|codegen|autotun|cpp_extension"
         r"|\bjit\b"),
        (PIPE, r"pipe_write|write.{0,20}pipe"),
        (STORAGE, r"\bfsync\b|\bwrite\w*\b|serialization\.py|torch\.save|\bsave\w*|_save\b|checkpoint|safetensors"
         r"|filesystem|\bopen\b|\bread(into|all|line)?\b|load_state_dict|torch\.load|\bpread\w*|\bpwrite\w*|upload|download"
         r"|boto|fsspec|\bgcs|\bs3|shutil|export_\w*(trace|snapshot)|_dump_snapshot|rename|listdir|\bstat\b|mkdir|file_io|\bflush\b"),
        (EVALUATION, r"\beval\w*|validat\w*"),
        (SLEEP, r"\bsleep\b|nanosleep"),
    )
)  # fmt: skip
_WAITING = re.compile(
    r"\b(wait|wait_for|acquire|_wait_for_tstate_lock|join|poll|select|get|put|recv_bytes|_recv|_recv_bytes|_poll|__enter__"
    r"|epoll_wait|futex\w*|pthread_\w+|sem_\w+|read|recv|result|_bootstrap\w*)\b|threading\.py|selectors\.py|queues?\.py"
    r"|multiprocessing|connection\.py|synchronize\.py|concurrent/",
    re.IGNORECASE,
)
_LOCK = re.compile(r"\bacquire\b|\block\b|_wait_for_tstate_lock|\b[rR]?Lock\b|futex|__enter__|semaphore", re.IGNORECASE)
_DIRECTORIES = re.compile(r"(?:[\w.+~-]*/)+")
_SURE: Final = (LOADER, COLLECTIVE, RENDEZVOUS, COMPILE, DEVICE)  # also where the frame itself waits
_WIDE: Final = (LOADER, STORAGE, COMPILE, EVALUATION)  # what the program's own frames inside of it belong to
_FRAMING = re.compile(
    r"data_?loader|_next_data|_utils/|checkpoint|\bsave|torch\.save|_inductor|_dynamo|\beval|validat", re.I
)
_BACKWARD: Final = re.compile(r"_?run_backward\b")  # computes, or waits for what data parallelism adds up meanwhile
_WCHANS: Final = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        (PIPE, r"pipe_w"),
        (STORAGE, r"nfs|rpc_|lustre|ll_|cl_|osc_|fuse|ceph|gpfs|io_schedule|wait_on_page|folio_wait|jbd2|ext4|xfs|btrfs"
         r"|blk_|bio_|submit_bio|writeback|balance_dirty|cifs|9p|vfs_|fsync"),
        (DEVICE, r"nv_|nvidia|uvm_|os_acquire|rm_"),
    )
)  # fmt: skip


class Doing(NamedTuple):
    what: str
    frame: str = ""  # the one that says so


def doing(rank: Rank) -> Doing:
    """What this rank is doing. Its stack says it best, then the kernel function that it waits in."""
    by_stack = of_stack(rank.stack)
    if by_stack.what in (UNSEEN, USER, LOCK, SLEEP) or (by_stack.what == STORAGE and rank.wchan):
        by_kernel = next((what for what, pattern in _WCHANS if rank.wchan and pattern.search(rank.wchan)), UNSEEN)
        if by_kernel:
            return Doing(by_kernel, rank.wchan if by_stack.what == UNSEEN else by_stack.frame)
    if by_stack.what == USER and _BACKWARD.search(by_stack.frame) and rank.cpu_moving is False:
        return Doing(COLLECTIVE, by_stack.frame)
    return by_stack


@lru_cache(maxsize=4_096)
def of_stack(stack: tuple[str, ...]) -> Doing:
    """What a stack says, innermost last."""
    lock, own = "", ""
    for frame in reversed(stack):
        near = _near(frame)
        what, waiting = _of_frame(near), bool(_WAITING.search(near))
        if own and what and not (what in _WIDE and _FRAMING.search(near)):
            continue
        if what in _SURE or (what and not waiting):
            return Doing(what, frame)
        lock = lock or (frame if _LOCK.search(near) else "")
        own = own or ("" if waiting or _LOCK.search(near) else frame)
    if lock:
        return Doing(LOCK, own or lock)
    return Doing(USER, own or stack[-1]) if stack else Doing(UNSEEN)


def _near(frame: str) -> str:
    """A frame without the directories of the program: their names mean nothing."""
    return frame if "torch" in frame else _DIRECTORIES.sub("", frame)


def _of_frame(frame: str) -> str:
    return next((what for what, pattern in _TABLE if pattern.search(frame)), UNSEEN)


class Fold(NamedTuple):
    """Ranks with one and the same stack."""

    ranks: tuple[int, ...]
    doing: Doing
    stack: tuple[str, ...]


def folded(ranks: Iterable[Rank]) -> list[Fold]:
    """Identical stacks as one, the rarest first: who is not where the others are."""
    by_stack: dict[tuple[str, ...], list[Rank]] = defaultdict(list)
    for rank in ranks:
        if rank.stack:
            by_stack[rank.stack].append(rank)
    folds = [Fold(tuple(sorted(r.rank for r in group)), doing(group[0]), stack) for stack, group in by_stack.items()]
    return sorted(folds, key=lambda fold: (len(fold.ranks), fold.ranks))


def in_words(fold: Fold, waiting: Container[int] = ()) -> str:
    """`waiting`: ranks that are inside of a collective; that of a backward pass is called below any frame of Python."""
    what = IN_WORDS[fold.doing.what]
    if fold.doing.what in (USER, UNSEEN, LOCK) and all(rank in waiting for rank in fold.ranks):
        what = IN_WORDS[COLLECTIVE]
    where = f" ({fold.doing.frame})" if fold.doing.frame else ""
    return f"{ranks_in_words(fold.ranks)}: {what}{where}"


def ranks_in_words(ranks: Iterable[int], most: int = 8) -> str:
    """Ranks as people write them, neighbours drawn together: ranks 0-6, 9."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans[:most])
    text += f" and others ({sum(b - a + 1 for a, b in spans)} in all)" if len(spans) > most else ""
    return f"rank{'' if len(spans) == 1 and spans[0][0] == spans[0][1] else 's'} {text}" if spans else "no rank"
