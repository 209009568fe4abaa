"""The health of a GPU as a fold over what is told of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core.gpu_health import GpuHealth
from rankpulse.core.gpu_plan import Ask, Plan
from rankpulse.core.gpu_reading import Identity, Said, bus_id, parse
from rankpulse.core.gpu_rules import Memory
from rankpulse.core.health_book import CHANGED, CLEARED, OPENED, SEEN, Book, Condition
from rankpulse.core.host_rules import Port, Ports, Stuck, Waiting, of_pressure, pressure
from rankpulse.core.settings import GpuSettings

BOARD = Identity("GPU-1", "NVIDIA H100", 0, 0)


class Story:
    """A GPU, told of every 15 seconds."""

    def __init__(self, **memory: Any) -> None:
        self.gpu = GpuHealth("0000:0f:00", Memory(**memory))
        self.now = 0.0
        self.changes: list[tuple[str, str]] = []

    def reads(self, *, times: int = 1, links: Any = None, slowest: Any = ("", 0.0), **values: float) -> "Story":
        for _ in range(times):
            self.now += 15.0
            said = Said(identity=BOARD, values=values, links=links, slowest=slowest)
            self._take(self.gpu.reading(said, self.now, self.now))
        return self

    def grows(self, name: str, per_s: float, *, times: int = 12, start: float = 0.0) -> "Story":
        for number in range(times):
            self.reads(**{name: start + per_s * 15.0 * number})
        return self

    def fault(self, code: int, action: str = "reset_gpu", role: str = "cause", count: int = 1) -> "Story":
        self._take(self.gpu.fault(code, f"Xid {code}", action, role, self.now, count))
        return self

    def _take(self, changes: Any) -> None:
        self.changes += [(change.how, change.finding.what) for change in changes]

    @property
    def open(self) -> list[str]:
        return [finding.what for finding in self.gpu.book.open]


@pytest.mark.parametrize(
    ("values", "what", "level", "action"),
    [
        ({"recovery_action": 1}, "recovery_action", "broken", "reset_gpu"),
        ({"recovery_action": 2}, "recovery_action", "broken", "drain_reboot"),
        ({"recovery_action": 4}, "recovery_action", "sick", "reset_gpu"),
        ({"recovery_action": 9}, "recovery_action", "sick", "inspect"),
        ({"remap_failed": 1}, "remap_failed", "broken", "contact_vendor"),
        ({"remap_pending": 1}, "remap_pending", "watch", "reset_gpu"),
        ({"retired_pending": 1}, "retired_pending", "watch", "reset_gpu"),
        ({"banks_none": 2}, "spare_rows", "watch", "ignore"),
        ({"sram_threshold_exceeded": 1}, "sram_threshold", "sick", "contact_vendor"),
        ({"ecc_uncorrected_volatile": 3}, "uncorrected_errors", "watch", "ignore"),
        ({"pcie_width": 8, "pcie_width_max": 16}, "pcie_width", "sick", "inspect"),
        ({"fabric_state": 3, "fabric_status": 999}, "fabric", "broken", "inspect"),
        ({"fabric_state": 3, "fabric_health": 0b0001}, "fabric_health", "sick", "inspect"),
        ({"fabric_state": 3, "fabric_health": 5 << 8}, "fabric_health", "sick", "inspect"),
    ],
)
def test_what_a_reading_opens_and_its_opposite_clears(
    values: dict[str, float], what: str, level: str, action: str
) -> None:
    story = Story().reads(**values)
    (finding,) = story.gpu.book.open
    assert (finding.what, finding.level, finding.action) == (what, level, action)
    assert (story.gpu.level, story.gpu.action) == (level, action)
    story.reads(temperature_c=40)
    assert story.open == [what], "what is not told clears nothing"
    story.reads(**{name: 16 if name.startswith("pcie") else (3 if name == "fabric_state" else 0) for name in values})
    assert story.open == []
    assert story.changes == [(OPENED, what), (CLEARED, what)]


def test_a_gpu_that_never_answered_is_unknown_and_not_well() -> None:
    assert Story().gpu.level == "unknown"
    assert Story().reads(temperature_c=40).gpu.level == "ok"


def test_corrected_errors_are_judged_by_their_rate_over_minutes_with_hysteresis() -> None:
    story = Story(corrected_per_s=100.0).grows("ecc_corrected_volatile", 90)
    assert story.open == []
    story.grows("ecc_corrected_volatile", 4600, times=24, start=20_000)
    assert story.open == ["corrected_errors"]
    story.grows("ecc_corrected_volatile", 50, times=40, start=3_000_000)
    assert story.open == ["corrected_errors"], "half as fast is no proof"
    story.grows("ecc_corrected_volatile", 1, times=40, start=4_000_000)
    assert story.open == []


def test_one_burst_between_two_readings_is_no_storm_yet() -> None:
    assert Story().reads(ecc_corrected_volatile=0).reads(ecc_corrected_volatile=1_000_000).open == []


def test_a_counter_that_went_down_was_reset_and_begins_anew() -> None:
    story = Story().grows("ecc_corrected_volatile", 5000).fault(119)
    assert set(story.open) == {"corrected_errors", "xid_119"}
    story.reads(ecc_corrected_volatile=0)
    assert (story.gpu.resets, "xid_119" in story.open) == (1, False)
    story.grows("ecc_corrected_volatile", 0, times=10)
    assert story.open == []


def test_a_reboot_is_not_proved_by_a_reset() -> None:
    story = Story().reads(ecc_corrected_volatile=9).fault(79, "drain_reboot").fault(95, "reset_gpu")
    story.reads(ecc_corrected_volatile=0)
    assert story.open == ["xid_79"]


def test_the_heavier_of_catalogue_and_recovery_action_wins() -> None:
    story = Story().fault(79, "drain_reboot").reads(recovery_action=1)
    assert (story.gpu.action, story.gpu.level) == ("drain_reboot", "broken")
    other = Story().fault(95, "reset_gpu").reads(recovery_action=2)
    assert other.gpu.action == "drain_reboot"


def test_repeats_are_counted_with_first_and_last_seen_and_told_once() -> None:
    story = Story().reads(temperature_c=40).fault(119)
    first = story.now
    story.reads(temperature_c=40, times=4).fault(119, count=7)
    (finding,) = story.gpu.book.open
    assert (finding.count, finding.first_at, finding.last_at) == (2, first, story.now)
    assert (story.gpu.xids[119].times, story.gpu.xids[119].first_at) == (8, first)
    assert [change for change in story.changes if change[1] == "xid_119"] == [(OPENED, "xid_119")]


def test_an_xid_that_gets_worse_is_told_again() -> None:
    story = Story().fault(13, "reset_gpu").fault(13, "contact_vendor")
    assert story.changes == [(OPENED, "xid_13"), (CHANGED, "xid_13")]


def test_what_a_program_did_is_over_with_it_and_echoes_are_only_counted() -> None:
    story = Story().reads(temperature_c=40).fault(31, "restart_app").fault(45, "ignore", "consequence")
    story.fault(31, "restart_app").fault(99999, "contact_vendor", "unknown")
    assert (story.open, story.gpu.level) == ([], "ok")
    assert story.changes == [(SEEN, "xid_31"), (SEEN, "xid_31"), (SEEN, "xid_99999")]
    assert {code: one.times for code, one in story.gpu.xids.items()} == {31: 2, 45: 1, 99999: 1}


def test_a_silent_gpu_is_unknown_until_it_answers() -> None:
    story = Story().reads(temperature_c=40)
    story._take(story.gpu.stuck(12.0, "state D in nvidia_ioctl", 20.0))
    story._take(story.gpu.stuck(72.0, "", 80.0))
    (finding,) = story.gpu.book.open
    assert (finding.what, finding.level, finding.count, story.gpu.level) == ("probe_stuck", "unknown", 2, "unknown")
    story._take(story.gpu.failed(15, "lost", 90.0))
    assert (story.open, story.gpu.action) == (["lost"], "drain_reboot")
    story.reads(temperature_c=40)
    assert (story.open, story.gpu.level) == ([], "ok")


def test_another_board_at_the_same_place_has_a_book_of_its_own() -> None:
    story = Story().reads(remap_failed=1)
    story.gpu.reading(Said(identity=Identity("GPU-2"), values={"temperature_c": 40}), 100.0, 100.0)
    assert (story.open, story.gpu.identity.uuid) == ([], "GPU-2")


def test_clocks_held_down_are_seen_by_their_counters() -> None:
    assert Story().grows("power_brake_ns", 0.2e9).open == ["power_brake_ns"]
    assert Story().grows("power_brake_ns", 1e6).open == []
    assert Story().grows("hw_thermal_ns", 0.5e9).open == ["hw_thermal_ns"]
    assert Story().grows("power_cap_ns", 1e9).open == [], "a power cap at full load is normal"


def test_replays_on_the_bus() -> None:
    assert Story().grows("pcie_replay", 1.0).open == ["pcie_replay"]
    assert Story().grows("pcie_replay", 0.05).open == []


def test_links_that_were_up_and_are_not() -> None:
    story = Story().reads(links=({"state": 1}, {"state": 0}))
    assert story.open == [], "a link that never was up is nobody's fault"
    story.reads(links=({"state": 0}, {"state": 0}))
    assert (story.open, story.gpu.book.open[0].text) == (["nvlink_down"], "NVLink 0 is down")
    story.reads(links=({"state": 1}, {"state": 0}))
    assert story.open == []


@pytest.mark.parametrize("kind", ["recovery", "recoveries"])
def test_a_link_that_recovers_again_and_again_is_an_early_warning(kind: str) -> None:
    story = Story()
    for number in range(200):
        story.reads(links=({kind: 0.0}, {kind: float(number)}))
    (finding,) = story.gpu.book.open
    assert (finding.what, finding.level, finding.text) == (
        "nvlink_errors", "watch", "NVLink 1 recovers again and again",
    )  # fmt: skip


def test_links_that_are_only_counted_together_are_an_early_warning_too() -> None:
    assert Story().grows("nvlink_recovery", 0.05, times=200).open == ["nvlink_errors"]
    assert Story().grows("nvlink_recovery", 0.001, times=200).open == []


def test_a_fabric_that_is_not_joined_in_minutes() -> None:
    story = Story().reads(fabric_state=2, times=10)
    assert story.open == []
    story.reads(fabric_state=2, times=15)
    assert story.open == ["fabric"]
    assert story.reads(fabric_state=3).open == []


def test_slow_calls() -> None:
    story = Story().reads(slowest=("power_mw", 6.0))
    assert story.open == ["slow_calls"]
    assert story.reads(slowest=("power_mw", 0.01)).open == []


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["ecc_corrected_volatile", "recovery_action", "remap_failed", "pcie_width", "fabric_state"]
            ),
            st.floats(0, 1e18),
        ),
        max_size=30,
    )
)
def test_no_reading_breaks_the_fold_and_none_opens_twice(readings: list[dict[str, float]]) -> None:
    story = Story()
    for values in readings:
        story.reads(**values)
    seen: dict[str, str] = {}
    for how, what in story.changes:
        assert how != OPENED or seen.get(what) in (None, CLEARED)
        seen[what] = how if how != CHANGED else seen[what]


# -- the book --


def test_a_book_has_an_end() -> None:
    book = Book()
    for number in range(500):
        book.passed(f"xid_{number}", Condition("watch", "inspect", ""), float(number))
    assert (len(book.findings), book.over[0].what) == (64, "xid_499")
    for number in range(100):
        book.found(f"open {number}", Condition("watch", "inspect", ""), 0.0)
    assert len(book.open) == 100, "what is open is never forgotten"


# -- whom to ask when --


def test_a_plan_asks_each_in_its_turn_and_the_slow_ones_less_and_less() -> None:
    plan = Plan(15.0, 60.0, 30.0, 900.0)
    plan.place(["a", "b"], 0.0)
    assert plan.asks(0.0) == [Ask("a", True), Ask("b", True)]
    assert (plan.asks(100.0), plan.open()) == ([], True)
    plan.answered("a", 1.0, slow=True, slowly=False)
    plan.answered("b", 1.0, slow=True, slowly=True)
    assert plan.next_at() == 16.0
    assert plan.asks(16.0) == [Ask("a", False)]
    assert plan.asks(31.0) == [Ask("b", False)]
    plan.answered("b", 31.0, slow=False, slowly=True)
    assert plan.asks(60.0) == []
    assert plan.asks(91.0) == [Ask("b", True)]


def test_a_storm_of_news_makes_no_storm_of_readings() -> None:
    plan = Plan(15.0, 60.0, 30.0, 900.0)
    plan.place(["a"], 0.0)
    asked = 0
    for tick in range(100):
        now = tick / 10
        plan.soon("a", now)
        for ask in plan.asks(now):
            asked += 1
            plan.answered(ask.bus, now, slow=ask.slow, slowly=False)
    assert asked == 10, "at most one a second"


def test_a_plan_sets_aside_who_hung_for_longer_each_time() -> None:
    plan = Plan(15.0, 60.0, 30.0, 900.0)
    plan.place(["a", "b"], 0.0)
    plan.asks(0.0)
    assert [plan.hung("a", 10.0) for _ in range(7)] == [30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 900.0]
    plan.nobody_answers()
    assert plan.together == ["b"]
    assert plan.asks(10.0) == [Ask("b", True)]
    plan.back("a", 20.0)
    assert plan.asks(20.0) == [Ask("a", True)]
    plan.answered("a", 20.0, slow=True, slowly=False)
    assert plan.hung("a", 30.0) == 900.0, "it hung again soon"


def test_by_default_a_gpu_that_hangs_is_told_of_within_half_a_minute() -> None:
    settings = GpuSettings()
    assert settings.poll_s + settings.call_timeout_s + 1.0 <= 30.0
    assert settings.poll_s >= 1.0


# -- lines --


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("00000000:0F:00.0", "0000:0f:00"),
        ("0000:0f:00.0", "0000:0f:00"),
        ("00010000:c1:00.0", "00010000:c1:00"),
        ("0000:0f:00", "0000:0f:00"),
        ("init", ""),
        ("0f:00.0", ""),
    ],
)
def test_places_on_the_bus_are_written_as_the_kernel_does(text: str, wanted: str) -> None:
    assert bus_id(text) == wanted


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_parsing_a_line_is_total(line: bytes) -> None:
    assert parse(line) is None or isinstance(parse(line), Said)


# -- the machine --


def test_memory_pressure_has_hysteresis() -> None:
    text = "some avg10=1.00 avg60=50.00 avg300=0.10 total=1\nfull avg10=0.00 avg60=12.50 avg300=0.00 total=1\n"
    assert pressure(text) == 12.5
    assert isinstance(of_pressure(12.5, before=False), Condition)
    assert not isinstance(of_pressure(5.0, before=False), Condition)
    assert isinstance(of_pressure(5.0, before=True), Condition)
    assert of_pressure(pressure("nothing of the kind"), before=True) is None


def test_ports_that_were_up_and_those_that_never_were() -> None:
    ports = Ports()
    up, never = Port("mlx5_0/1", "4: ACTIVE", {"link_downed": 3}), Port("mlx5_1/1", "1: DOWN")
    assert not isinstance(ports.look([up, never])[0], Condition)
    verdict, flapped = ports.look([Port("mlx5_0/1", "1: DOWN", {"link_downed": 4}), never])
    assert isinstance(verdict, Condition)
    assert (verdict.text, flapped) == ("network port mlx5_0/1 is down", [])
    verdict, flapped = ports.look([Port("mlx5_0/1", "4: ACTIVE", {"link_downed": 5}), never])
    assert (isinstance(verdict, Condition), flapped) == (False, ["mlx5_0/1"])


def test_a_process_is_stuck_when_it_was_seen_so_again_and_again() -> None:
    waiting, one = Waiting(), Stuck(7, 1, "python")
    assert not any(isinstance(waiting.look([one]), Condition) for _ in range(2))
    verdict = waiting.look([one, Stuck(9, 2, "dd")])
    assert isinstance(verdict, Condition)
    assert "python (7)" in verdict.text
    assert not isinstance(waiting.look([Stuck(7, 99, "python")]), Condition), "another process of the same number"


def test_a_gpu_that_was_never_seen_here_is_not_called_lost() -> None:
    """A container may list the GPUs of the whole machine, and be shown some."""
    story = Story()
    story._take(story.gpu.failed(28, "Not Found", 1.0))
    assert (story.open, story.gpu.level, story.gpu.action) == (["no_answer"], "unknown", "inspect")
    story.reads(temperature_c=40.0)
    story._take(story.gpu.failed(28, "Not Found", 2.0))
    assert (story.open, story.gpu.level, story.gpu.action) == (["lost"], "broken", "drain_reboot")


def test_a_lost_gpu_stays_lost_to_an_agent_that_starts_anew() -> None:
    before, after = Story().reads(temperature_c=40.0), Story()
    before._take(before.gpu.failed(15, "GPU is lost", 1.0))
    after.gpu.book.findings = dict(before.gpu.book.findings)
    after._take(after.gpu.failed(28, "Not Found", 2.0))
    assert after.open == ["lost"]
