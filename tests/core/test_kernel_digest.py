"""A storm of lines becomes a few faults, and the short cut that makes it quick makes no difference."""

import random
from typing import Any

import pytest

from rankpulse.core.fault_book import FAULTS_MAX
from rankpulse.core.faults import Fault, Key
from rankpulse.core.kernel_digest import TABLE_MAX, Digest

ASKS = "GPU recovery action changed from 0x0 (None) to 0x{} (x)"
LEADS = [
    lambda at: f"[{at:12.6f}] ",
    lambda at: f"4,17,{round(at * 1e6)},-;",
    lambda at: f"Jun 12 16:{at // 60 % 60:02.0f}:{at % 60:02.0f} node-a kernel: ",
    lambda at: (
        f"2025-01-21T04:{at // 60 % 60:02.0f}:{int(at % 60):02d}.{round(at % 1 * 1e6) % 10**6:06d}+00:00 n kernel: "
    ),
    lambda at: f"2025-01-21T04:11:12.000000+00:00 n kernel: [{at:.6f}] ",
    lambda at: f"kern  :warn  : [{at:.6f}] ",
    lambda _at: "",
]


def storm(lead: Any, lines: int = 8000, seed: int = 1) -> list[str]:
    lot, at, made = random.Random(seed), 100.0, []
    codes = [(bus, code) for bus in range(2) for code in (13, 45, 62, 79, 154)]
    for number in range(lines):
        at += lot.choice((0.0001, 0.0001, 0.001)) if number % 2500 else lot.choice((7.0, 100.0))
        bus, code = lot.choice(codes)
        body = (
            ASKS.format(lot.choice("0124"))
            if code == 154
            else f"pid={lot.randrange(1, 99)}, name=python3, Ch {number:08x}"
        )
        made.append(f"{lead(at)}NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, {body}")
    return made


def digest(texts: list[str], short_cut: bool = True) -> Digest:
    made = Digest(short_cut=short_cut)
    made.feed(texts)
    return made


def seen(fault: Fault) -> tuple[Any, ...]:
    times = tuple(None if at is None else round(at, 4) for at in (fault.first, fault.last))
    cause = fault.cause.key if fault.cause else None
    return (
        fault.lines, fault.occurrences, fault.in_burst, times, fault.recovery, fault.cleared, cause, dict(fault.echoes)
    )  # fmt: skip


@pytest.mark.parametrize("lead", LEADS)
def test_the_short_cut_makes_no_difference(lead: Any) -> None:
    texts = storm(lead)
    quick, slow = digest(texts), digest(texts, short_cut=False)
    assert {key: seen(fault) for key, fault in quick.book.faults.items()} == {
        key: seen(fault) for key, fault in slow.book.faults.items()
    }
    assert len(quick._running) > 5  # the short cut was taken
    assert (quick.lines, quick.kinds, quick.injected) == (slow.lines, slow.kinds, slow.injected)


@pytest.mark.parametrize("seed", range(4))
def test_nor_where_logs_are_mixed_and_times_jump(seed: int) -> None:
    lot = random.Random(seed)
    texts = [line for lead in lot.sample(LEADS, 2) for line in storm(lead, 1500, seed)]
    lost = "NVRM: Xid (PCI:0000:00:00): 79, y"
    odd = [
        "x " + lost,
        "12,1,2,-;" + lost,
        f"[ 1.0] [ 2.0] {lost}",
        lost[:-3],
        lost.replace(", y", "x"),
        lost[:-3] + "9",
    ]
    for _ in range(60):
        texts.insert(lot.randrange(len(texts)), lot.choice(odd))
    quick, slow = digest(texts), digest(texts, short_cut=False)
    assert {key: seen(fault) for key, fault in quick.book.faults.items()} == {
        key: seen(fault) for key, fault in slow.book.faults.items()
    }


def test_a_storm_is_one_fault_with_a_count() -> None:
    texts = [f"[{100 + n / 1e4:.6f}] NVRM: Xid (PCI:0000:0f:00): 31, pid={n}, name=a, Ch {n}" for n in range(20_000)]
    found = digest(texts)
    (fault,) = found.book.faults.values()
    assert (fault.key, fault.lines, fault.occurrences) == (Key("0000:0f:00", 31), 20_000, 1)
    assert (fault.first, fault.last) == (100.0, 101.9999)


def test_what_is_kept_has_bounds_however_many_places_are_named() -> None:
    lead = LEADS[0]
    texts = [
        f"{lead(100 + n / 1e6)}NVRM: Xid (PCI:{n % 9000:04x}:01:00): 31, pid=1, name=a, Ch 0" for n in range(60_000)
    ]
    found = digest(texts)
    assert len(found.book.faults) == FAULTS_MAX
    assert found.book.beyond + sum(fault.lines for fault in found.book.faults.values()) == 60_000
    assert len(found._running) <= TABLE_MAX
