"""What the kernel says of the machine itself: memory, CPUs, tasks, disks. Total."""

import re
from collections.abc import Callable
from typing import Final

from rankpulse.core.kernel_reading import Reading

_PID = r"(\d{1,10})"
_NAME = r"(.{1,64})"
_IN_PARENTHESES = r"\((.{0,64}?)\)(?=[\s,.]|$)"  # a name may hold parentheses itself
_EDAC = re.compile(r"EDAC \w{1,16}\d*: (?:(\d{1,9}) )?(CE|UE)\b", re.ASCII)
_GHES = re.compile(
    r"(?:mce: )?(?:\{\d{1,9}\})?\[Hardware Error\]: ?"
    r"(?:event severity: (\w+)|(CPU \d+: Machine Check Exception|Uncorrected, |System Fatal error))?", re.ASCII
)  # fmt: skip
_BAD_PAGE = re.compile(
    rf"(?:MCE|Memory failure:) 0x[0-9a-f]+: .*?(?:SIGBUS to|Killing) {_NAME}:{_PID} due to hardware memory", re.ASCII
)
_HUNG = re.compile(
    rf"INFO: task {_NAME}:{_PID} (?:<[^>]*> )?blocked (?:in I/O wait )?for more than \d+ seconds", re.ASCII
)
_LOCKUP = re.compile(
    rf"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#\d+ stuck for \d+s!(?: \[{_NAME}:{_PID}\])?", re.ASCII
)
_HARD = re.compile(
    r"(?:NMI watchdog: |watchdog: )?(?:BUG: )?(?:CPU\d+: )?Watchdog detected hard LOCKUP on cpu \d+", re.ASCII
)
_RCU = re.compile(r"(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stalls?", re.ASCII)
_SEGFAULT = re.compile(
    rf"(?:traps: )?(?:{_NAME}\[{_PID}\]:? )?"
    r"(?:segfault at |general protection(?: fault)? ip:|trap \w[\w ]* ip:)"
    r".*? error[: ][0-9a-f]+(?: in ([^\s\[]{1,128}))?",
    re.ASCII,
)
_OOM = re.compile(
    rf"(?:(Memory cgroup out of memory)|Out of memory)[^:]{{0,64}}: Kill(?:ed)? process {_PID} {_IN_PARENTHESES}",
    re.IGNORECASE | re.ASCII,
)
_OOM_OLD = re.compile(rf"Kill(?:ed|ing) process {_PID}(?:, UID \d+,)? {_IN_PARENTHESES}", re.ASCII)
_OOM_SUM = re.compile(rf"oom-kill:constraint=(\w+),.*?\btask=(.{{0,64}}?),pid={_PID},", re.ASCII)
_OOM_ASKED = re.compile(rf"{_NAME} invoked oom-killer: ", re.ASCII)
_OOM_REAPED = re.compile(rf"oom_reaper: reaped process {_PID} {_IN_PARENTHESES}", re.ASCII)
_DISK = re.compile(
    r"md/[\w:-]+: Disk failure on "
    r"|(?:(?:blk_update_request|print_req_error): )?(?:critical \w+|I/O|protection|recovered) error, dev \w+"
    r"|Buffer I/O error on |EXT[234]-fs error"
    r"|EXT[234]-fs \([^)]*\): (?:Remounting filesystem read-only|previous I/O error)"
    r"|XFS \([^)]*\): .*(?:[Cc]orrupt|I/O [Ee]rror|[Ss]hut(?:ting)? ?down)"
    r"|BTRFS(?: error|: Remounting|: error|.*forced readonly)"
    r"|nvme (?:nvme\d+|\S+): (?:I/O .*timeout|controller is down|Removing after probe|Device not ready|.*Abort status)"
    r"|nvme\d+n\d+: .*I/O [Ee]rror|Aborting journal on device|JBD2: .*[Ee]rror"
    r"|sd [\d:]+: (?:\[\w+\] )?(?:tag#\d+ )?(?:rejecting I/O to offline|FAILED Result|Device offlined)"
    r"|ata\d+(?:\.\d+)?: (?:failed command|exception Emask|hard resetting link)",
    re.ASCII,
)
_STALLED = re.compile(
    r"(?:nfs|NFS): server \S+ not responding|ceph: mds\d+ (?:hung|caps stale)|libceph: \w+ .*(?:down|timed? ?out)"
    r"|Lustre(?:Error)?: .*(?:timed out|Connection to .* was lost|evicted)",
    re.ASCII,
)


def read(text: str) -> Reading | None:
    return next((found for rule in _RULES if (found := rule(text)) is not None), None)


def _pid(text: str | None) -> int | None:
    return int(text) if text else None


def _edac(text: str) -> Reading | None:
    found = _EDAC.match(text)
    return Reading("edac", edac=found[2], count=int(found[1] or 1)) if found else None


def _mce(text: str) -> Reading | None:
    if (found := _GHES.match(text)) is not None:
        return Reading("mce", severity="uncorrected" if found[2] else found[1])
    if (bad := _BAD_PAGE.match(text)) is not None:
        return Reading("mce", pid=_pid(bad[2]), process_name=bad[1])
    return Reading("mce", severity="uncorrected") if text.startswith("mce: Uncorrected hardware memory") else None


def _tasks(text: str) -> Reading | None:
    for pattern, kind in ((_HUNG, "hung_task"), (_LOCKUP, "soft_lockup")):
        if (found := pattern.match(text)) is not None:
            return Reading(kind, pid=_pid(found[2]), process_name=found[1])
    if _HARD.match(text):
        return Reading("hard_lockup")
    if _RCU.match(text):
        return Reading("rcu_stall")
    return Reading("kernel_panic") if text.startswith("Kernel panic - not syncing") else None


def _segfault(text: str) -> Reading | None:
    found = _SEGFAULT.match(text)
    return Reading("segfault", pid=_pid(found[2]), process_name=found[1], library=found[3]) if found else None


def _oom(text: str) -> Reading | None:
    if (found := _OOM.match(text)) is not None:
        return Reading("oom_kill", pid=_pid(found[2]), process_name=found[3], scope="cgroup" if found[1] else "host")
    if (found := _OOM_SUM.match(text)) is not None:
        scope = "cgroup" if found[1].endswith("MEMCG") else "host"
        return Reading("oom_kill", pid=_pid(found[3]), process_name=found[2], scope=scope)
    if (found := _OOM_OLD.match(text)) is not None:
        return Reading("oom_kill", pid=_pid(found[1]), process_name=found[2])
    if (found := _OOM_REAPED.match(text)) is not None:
        return Reading("oom_reaped", pid=_pid(found[1]), process_name=found[2])
    return Reading("oom_invoked", process_name=asked[1]) if (asked := _OOM_ASKED.match(text)) else None


def _storage(text: str) -> Reading | None:
    if _DISK.match(text):
        return Reading("disk_error")
    return Reading("storage_stall") if _STALLED.match(text) else None


_RULES: Final[tuple[Callable[[str], Reading | None], ...]] = (_oom, _tasks, _segfault, _mce, _edac, _storage)
