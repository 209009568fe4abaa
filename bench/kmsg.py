"""What a storm in the kernel's log costs, and whether anything in it can break its reader.

`rankpulse bench kmsg`: 800,000 XID lines of 29 faults, in each of the forms in which logs come, through
`rankpulse kmsg` as a process of its own, time and memory as the kernel counts them. `--fuzz N`: N broken lines.
"""

import json as json_
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

LINES: Final = 800_000
FAULTS: Final = 29
_CODES: Final = (13, 31, 43, 45, 48, 62, 63, 74, 79, 94, 95, 109, 119, 120, 144, 145, 149, 154)
_BODIES: Final = {
    13: "pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC {n}, TPC 1, SM 1): Out Of Range Address",
    79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}
_FORMS: Final[dict[str, Callable[[float, int], str]]] = {
    "dmesg": lambda at, _n: f"[{at:.6f}] ",
    "dmesg -x": lambda at, _n: f"kern  :warn  : [{at:.6f}] ",
    "/dev/kmsg": lambda at, n: f"4,{n},{round(at * 1e6)},-;",
    "journalctl": lambda at, _n: time.strftime("%b %d %H:%M:%S node-a kernel: ", time.gmtime(at)),
    "journalctl -o short-iso-precise": lambda at, _n: (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
        + f".{round(at % 1 * 1e6) % 10**6:06d}+00:00 node-a kernel: "
    ),
}


def run(lines: int, fuzz: int, seed: int, json: bool) -> dict[str, Any]:
    """Measure and print. `seconds`: CPU and wall time of the command; `mib`: its peak memory."""
    found: dict[str, Any] = {"lines": lines, "faults": FAULTS, "python": sys.version.split()[0], "cpus": os.cpu_count()}
    if fuzz:
        found |= {"fuzz": fuzzed(fuzz, seed)}
    else:
        found |= {"forms": {form: _measured(form, lines, seed) for form in _FORMS}, "empty_call_ns": _empty_call_ns()}
    print(json_.dumps(found) if json else _table(found))
    return found


def _empty_call_ns() -> float:
    """What an empty call costs here and now: CPU time on a busy machine is not what it is on an idle one."""
    samples = []
    for _ in range(40):
        began = time.process_time_ns()
        for _ in range(10_000):
            _nothing()
        samples.append((time.process_time_ns() - began) / 10_000)
    return round(statistics.median(samples), 1)


def _nothing() -> None:
    pass


def storm(form: str, lines: int, seed: int) -> Iterator[str]:
    """A storm: `FAULTS` faults on eight GPUs take turns, a few thousand lines a second."""
    lot, at = random.Random(seed), 1_000_000.0  # noqa: S311 (a trace that can be made again)
    faults = lot.sample([(bus, code) for bus in range(8) for code in _CODES], FAULTS)
    made = _FORMS[form]
    for number in range(lines):
        at += lot.random() * 0.0005
        bus, code = faults[number] if number < FAULTS else lot.choice(faults)
        body = _BODIES.get(code, "pid={p}, name=pt_main_thread, Ch {n:08x}")
        text = body.format(p=1000 + lot.randrange(30_000), n=number % 8 if code == 13 else number)
        yield f"{made(at, number)}NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, {text}\n"


def _measured(form: str, lines: int, seed: int) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.writelines(storm(form, lines, seed))
        file.flush()
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [sys.executable, "-c", _COMMAND, "kmsg", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    told, mib = done.stdout.splitlines()[0], int(done.stderr.splitlines()[-1]) / 1024
    return {
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "wall_s": round(wall, 2),
        "mib": round(mib),
        "told": told,
    }


_COMMAND: Final = """
import resource, sys
from rankpulse.cli.main import app
try:
    app()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def fuzzed(lines: int, seed: int) -> dict[str, Any]:
    """Broken lines, one after the other. Counts those that raised, and false XIDs.

    False is the XID of a line that has none in it to be broken: real kernel lines of other kinds, near misses and
    programs that quote the driver, with bytes changed, lost, doubled, swapped with bytes of other lines.
    """
    from rankpulse.core import kernel_log

    lot, raised, false, read = random.Random(seed), 0, 0, 0  # noqa: S311 (as above)
    for _ in range(lines):
        real, line = broken(lot)
        try:
            found = kernel_log.read(line)
        except Exception as error:  # it is what is looked for
            raised += 1
            print(f"{type(error).__name__}: {line!r}", file=sys.stderr)
            continue
        read += found.xid is not None
        if found.xid is not None and not real:
            false += 1
            print(f"XID {found.xid}: {line!r}", file=sys.stderr)
    return {"lines": lines, "seed": seed, "raised": raised, "false_xids": false, "read_as_xid": read}


def broken(lot: random.Random) -> tuple[bool, str]:
    """One line, and whether an XID was in it."""
    real = lot.random() < 0.5
    raw = bytearray(lot.choice(XIDS if real else OTHERS))
    for _ in range(lot.randrange(1, 6)):
        at, size = lot.randrange(len(raw) + 1), lot.randrange(4)
        what = lot.random()
        if what < 0.4:
            raw[at : at + size] = lot.randbytes(size)
        elif what < 0.6:
            del raw[at : at + lot.randrange(20)]
        elif what < 0.8:
            raw[at:at] = raw[at : at + lot.randrange(20)]
        else:
            other = lot.choice(OTHERS)
            start = lot.randrange(len(other))
            raw[at:at] = other[start : start + lot.randrange(30)]
    return real, raw.decode("utf-8", "replace")


XIDS: Final = tuple(
    line.encode()
    for line in (
        "[111111.111] NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: Xid (0000:01:00): 8, Channel 00000020",
        "kern  :warn  : 2025-01-21T04:41:44,283575+00:00 NVRM: Xid (PCI:0000:38:00): 43, pid=29, name=a:b, Ch 00000008",
        "Jun 12 16:26:10 node-a kernel: NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7, Contained: CE (0x9).",
        "4,1733,48429999,-;NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (x)",
        "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000)",
    )
)
OTHERS: Final = tuple(
    line.encode()
    for line in (
        "NVRM: Xid error: xyz, invalid data",
        "Oct 15 12:40:10 node-a kernel: NVRM: Xid (43, pid: 5678): ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR",
        "NVRM: _kgspLogXid119: ****** GSP Timeout ******",
        "postgres[44]: ERROR:  xid 79 could not be assigned",
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
        "NVRM: API mismatch: the client has the version 535.54.03, but#012NVRM: this kernel module has the version 530",
        "[  721.028170] INFO: task nvc:[driver]:5403 blocked for more than 120 seconds.",
        "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
        "nvidia 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
        "Out of memory: Killed process 25315 (python3) total-vm:53312244kB, anon-rss:31451456kB, UID:0",
        "{1}[Hardware Error]: event severity: recoverable",
        "bond0: link status definitely down for interface eno50, disabling it",
        '{"MESSAGE":"EDAC MC1: 262 CE memory read error on CPU_SrcID#1","_TRANSPORT":"kernel"}',
    )
)


def _table(found: dict[str, Any]) -> str:
    if "fuzz" in found:
        return "\n".join(f"{name}: {value}" for name, value in found["fuzz"].items())
    rows = [f"{'form':32} {'CPU s':>6} {'wall s':>7} {'MiB':>5}  first line of the page"]
    rows += [
        f"{form:32} {one['cpu_s']:6.2f} {one['wall_s']:7.2f} {one['mib']:5}  {one['told']}"
        for form, one in found["forms"].items()
    ]
    rows.append(f"an empty call: {found['empty_call_ns']} ns")
    return "\n".join(rows)
