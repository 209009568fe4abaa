"""Sightings become faults: one per code and place, echoes with their causes, repeats counted, storms bounded."""

from rankpulse.core import xid_catalogue as c
from rankpulse.core.fault_advice import advice
from rankpulse.core.fault_book import FAULTS_MAX, SHARE_MAX, Book
from rankpulse.core.fault_groups import incidents
from rankpulse.core.faults import NVML, Fault, Key, Seen
from rankpulse.core.kernel_log import of_message
from rankpulse.core.kernel_prefix import strip
from rankpulse.core.kernel_reading import XID, Reading

BUS = "0000:0f:00"


def xid(at: float, code: int, body: str = "pid=7, name=python3, Ch 00000008", bus: str = BUS) -> str:
    return f"[{at:.3f}] NVRM: Xid (PCI:{bus}): {code}, {body}"


def read(*lines: str, book: Book | None = None) -> Book:
    book = book or Book()
    for line in lines:
        framed = strip(line)
        book.seen(Seen(of_message(framed), framed.at, framed.clock, text=framed.text))
    return book


def event(book: Book, at: float, code: int, bus: str = BUS) -> None:
    book.seen(Seen(Reading(XID, code, bus), at, "up", NVML))


def only(book: Book) -> Fault:
    (fault,) = book.causes()
    return fault


def test_a_line_and_an_event_are_one_fault() -> None:
    book = read(xid(100, 79, "GPU has fallen off the bus."))
    event(book, 104.0, 79)
    fault = only(book)
    assert (fault.lines, fault.events, fault.count, fault.occurrences) == (1, 1, 1, 1)


def test_the_event_may_come_first_and_its_line_carry_an_earlier_time() -> None:
    book = Book()
    event(book, 103.0, 48)
    read(xid(100, 48), book=book)
    fault = only(book)
    assert (fault.first, fault.last, fault.occurrences) == (100.0, 103.0, 1)


def test_later_than_that_it_is_another_occurrence() -> None:
    book = read(xid(100, 79), xid(106, 79))
    assert only(book).occurrences == 2


def test_another_gpu_and_another_code_are_other_faults() -> None:
    book = read(xid(100, 79), xid(100, 79, bus="0000:10:00"), xid(100, 48))
    assert set(book.faults) == {Key(BUS, 79), Key("0000:10:00", 79), Key(BUS, 48)}


def test_the_twin_line_of_a_lost_gpu_is_the_same_fault_whichever_comes_first() -> None:
    twin = "[100.1] NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus."
    for lines in ((xid(100, 79), twin), (twin, xid(100.2, 79))):
        fault = only(read(*lines))
        assert (fault.xid, fault.lines, fault.occurrences) == (79, 2, 1)
    assert only(read(twin)).xid is None


def test_echoes_are_attached_to_their_cause() -> None:
    asks = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    book = read(xid(100, 62), xid(100.1, 45), xid(100.1, 45), xid(101, 154, asks), xid(130, 43))
    fault = only(book)
    assert fault.xid == 62
    assert fault.echoes == {"45": 2, "154": 1, "43": 1}
    assert fault.recovery == 1


def test_an_echo_that_was_told_first_finds_its_cause() -> None:
    book = read(xid(100, 154, "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"), xid(101, 119))
    fault = only(book)
    assert (fault.xid, fault.recovery) == (119, 2)
    assert advice(fault).action == c.DRAIN_REBOOT


def test_an_echo_names_its_cause() -> None:
    cause = xid(100, 149, "NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x0)")
    book = read(cause, xid(110, 31), xid(111, 45, "pid=1, name=p, Ch 00000001 caused by previous Xid 149"))
    assert book.faults[Key(BUS, 45)].cause is book.faults[Key(BUS, 149)]


def test_an_echo_without_a_cause_stands_alone_and_long_after_it_too() -> None:
    assert only(read(xid(100, 45))).xid == 45
    book = read(xid(100, 62), xid(300, 45))
    assert {fault.xid for fault in book.causes()} == {62, 45}


def test_three_lines_of_a_switch_are_one() -> None:
    at = "[100.0] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, "
    book = read(at + "Fatal, Link 48 LTSSM Fault Up", at + "Severity 1 Engine instance 48", at + "Data {0x1, 0x2}")
    fault = only(book)
    assert (fault.occurrences, fault.lines, fault.links) == (1, 3, {48: 1})


def test_the_heavier_of_catalogue_and_driver_wins() -> None:
    asks = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    assert advice(only(read(xid(100, 79), xid(101, 154, asks)))).action == c.DRAIN_REBOOT
    reboot = asks.replace("0x1", "0x2")
    assert advice(only(read(xid(100, 13), xid(101, 154, reboot)))).action == c.DRAIN_REBOOT


def test_a_recovery_action_of_zero_is_good_news() -> None:
    asks = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    book = read(xid(900, 154, asks))
    assert advice(only(book)).action == c.IGNORE


def at_place(at: float, gpc: int, tpc: int) -> tuple[str, ...]:
    where = f"(GPC {gpc}, TPC {tpc}, SM 0)"
    return (
        xid(at, 13, f"pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on {where}: Out Of Range Address"),
        xid(at, 13, f"pid='<unknown>', name=<unknown>, Graphics SM Global Exception on {where}: Multiple Warp Errors"),
        xid(at, 13, "pid='<unknown>', name=<unknown>, Graphics Exception: ESR 0x57c730=0xc04000b"),
    )


def test_one_exception_of_many_lines_is_the_programs() -> None:
    fault = only(read(*at_place(100, 7, 7)))
    assert (fault.lines, fault.occurrences, fault.places) == (3, 1, {(7, 7): 1})
    assert advice(fault).action == c.RESTART_APP


def test_exceptions_in_different_places_are_the_programs_and_at_one_place_the_gpus() -> None:
    assert advice(only(read(*at_place(100, 7, 7), *at_place(200, 1, 2)))).action == c.RESTART_APP
    assert advice(only(read(*at_place(100, 7, 7), *at_place(200, 7, 7)))).action == c.CONTACT_VENDOR


def test_page_faults_of_one_program_are_its_own_and_of_many_the_gpus() -> None:
    one = [xid(100 * n, 31, "pid=7, name=a, Ch 0") for n in range(1, 5)]
    many = [xid(100 * n, 31, f"pid={n}, name=a, Ch 0") for n in range(1, 5)]
    assert advice(only(read(*one))).action == c.RESTART_APP
    assert advice(only(read(*many))).action == c.CONTACT_VENDOR


def test_firmware_that_stalls_again_needs_more_than_a_reset() -> None:
    assert advice(only(read(xid(100, 119)))).action == c.RESET_GPU
    assert advice(only(read(xid(100, 119), xid(4000, 119)))).action == c.DRAIN_REBOOT


def test_what_links_print_decides_and_the_fatal_one_leads() -> None:
    quiet = "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x0)"
    loud = "NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x0)"
    buses = [f"00{n:02x}:01:00" for n in range(8)]
    lines = [xid(100 + n / 100, 145, quiet, bus) for n, bus in enumerate(buses)]
    book = read(*lines, xid(100.5, 149, loud, buses[3]))
    (incident,) = incidents(book.causes())
    assert (incident.lead.key, len(incident.faults)) == (Key(buses[3], 149), 9)
    assert incident.advice.action == c.RESET_GPU
    (alone,) = incidents(read(lines[0]).causes())
    assert alone.advice.action == c.IGNORE


def test_faults_of_one_gpu_within_seconds_are_one_incident() -> None:
    book = read(xid(100, 63), xid(100.1, 48), xid(100.2, 94), xid(500, 13))
    first, second = incidents(book.causes())
    assert (first.lead.xid, second.lead.xid) == (48, 13)


def test_what_somebody_wrote_into_the_log_is_a_fault_apart() -> None:
    book = read(f"12,5,100000000,-;NVRM: Xid (PCI:{BUS}): 79, x", f"4,6,100500000,-;NVRM: Xid (PCI:{BUS}): 48, pid=1")
    assert set(book.faults) == {Key(BUS, 79, True), Key(BUS, 48)}
    assert len(incidents(book.causes())) == 2


def test_a_link_that_came_back_asks_for_nothing() -> None:
    down, up = (f"mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link {how}" for how in ("DOWN", "ACTIVE"))
    assert advice(only(read(down))).action == c.CONTACT_VENDOR
    assert advice(only(read(down, up))).action == c.IGNORE
    assert advice(only(read(down, up, down))).action == c.CONTACT_VENDOR


def test_a_machine_that_was_started_again_starts_another_occurrence() -> None:
    book = read(xid(5000, 79), xid(90, 79))
    assert (only(book).occurrences, book.boots) == (2, 2)
    book = read(xid(5000, 62), xid(30, 45))
    assert book.faults[Key(BUS, 45)].cause is None


def test_lines_without_a_time_prove_no_second_occurrence() -> None:
    line = f"NVRM: Xid (PCI:{BUS}): 119, pid=1, name=a, Timeout"
    assert only(read(line, line)).occurrences == 1


def test_no_program_fills_the_book_before_a_gpu_breaks() -> None:
    """A process may be called as it likes, and whoever may write to the log may name any GPU."""
    killed = "Memory cgroup out of memory: Killed process {0} (job{0}) total-vm:1kB, anon-rss:1kB"
    injected = "12,5,100000000,-;NVRM: Xid (PCI:{0:04x}:01:00): 79, x"
    for made_up in (killed, injected):
        book = read(*(made_up.format(n) for n in range(FAULTS_MAX + 10)))
        assert (len(book.faults), book.beyond) == (SHARE_MAX, FAULTS_MAX + 10 - SHARE_MAX)
        read(made_up.format(0), xid(100, 79), book=book)
        assert book.faults[Key(BUS, 79)].lines == 1
        assert next(iter(book.faults.values())).lines == 2


def test_the_book_is_bounded() -> None:
    book = read(*(xid(100, 79, bus=f"{n:04x}:01:00") for n in range(FAULTS_MAX + 10)))
    assert (len(book.faults), book.beyond) == (FAULTS_MAX, 10)
    fault = only(read(*(xid(n * 10.0, 31, f"pid={n + 1}, name=p{n}, Ch 0") for n in range(100))))
    assert (len(fault.pids), len(fault.processes), len(fault.samples)) == (8, 8, 3)


def test_what_was_corrected_does_not_hide_what_could_not_be() -> None:
    book = read(
        "[   10.0] EDAC MC1: 262 CE memory read error on CPU_SrcID#1",
        "[ 5000.0] EDAC MC1: 1 UE memory read error on CPU_SrcID#1",
        "[ 6000.0] pcieport 0000:00:03.0: AER: Corrected error received: 0000:01:00.0",
        "[ 7000.0] pcieport 0000:00:03.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0",
        "[ 8000.0] {1}[Hardware Error]: event severity: corrected",
        "[ 8600.0] {1}[Hardware Error]: event severity: fatal",
    )
    asked = {fault.key.code: (advice(fault).action, fault.occurrences) for fault in book.causes()}
    worse = dict.fromkeys(("edac", "pcie_aer", "mce"), (c.DRAIN_REBOOT, 1))
    assert asked == worse | dict.fromkeys(("edac_mild", "pcie_aer_mild", "mce_mild"), (c.IGNORE, 1))
