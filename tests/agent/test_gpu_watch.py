"""GPUs watched through a process that may hang: the real pynvml over a library of ours, each failure in turn."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from gpu_bench import NvmlStub, library
from support import eventually

from rankpulse.agent.clock import Clock
from rankpulse.agent.facts import Fact
from rankpulse.agent.gpu_books import GpuBooks
from rankpulse.agent.gpu_devices import Devices
from rankpulse.agent.gpu_watch import Gpus
from rankpulse.agent.nvml_process import NvmlProcess, state_of
from rankpulse.core.gpu_plan import Plan
from rankpulse.core.health_book import CLEARED, OPENED, SEEN
from rankpulse.core.settings import GpuSettings

pytestmark = pytest.mark.live
QUICK = {"poll_s": 0.2, "slow_poll_s": 0.2, "call_timeout_s": 1.0, "start_timeout_s": 20.0, "retry_s": 0.2}


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    return library(tmp_path, monkeypatch)


class Watch:
    """A keeper at work, and what it told."""

    def __init__(self, count: int | None, **changes: Any) -> None:
        s = GpuSettings(**{**QUICK, **changes.pop("settings", {})})
        self.facts: list[Fact] = []
        self.able: dict[str, str] = {}
        plan = Plan(s.poll_s, s.slow_poll_s, s.retry_s, s.retry_max_s)
        tell, able = self.facts.append, self.able.__setitem__
        self.books = GpuBooks(s, changes.pop("wanted", 0), Clock(), tell, able, plan, changes.pop("on_xid", None))
        listed = None if count is None else [NvmlStub.bus(number) for number in range(count)]
        self.gpus = Gpus(self.books, devices=Devices(lambda: True, lambda: listed), **changes)

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator["Watch"]:
        task = asyncio.create_task(self.gpus.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def told(self, what: str, how: str = OPENED, bus: str | None = None) -> Callable[[], bool]:
        return lambda: any(
            (fact.detail["what"], fact.detail["how"]) == (what, how) and bus in (None, fact.detail["bus"])
            for fact in self.facts
        )

    def value(self, gpu: int, name: str) -> float | None:
        known = self.books.gpus.get(NvmlStub.bus(gpu))
        return known.values.get(name) if known else None

    def reads(self, gpu: int, **wanted: float) -> Callable[[], bool]:
        return lambda: all(self.value(gpu, name) == value for name, value in wanted.items())

    def level(self, gpu: int) -> str:
        return self.books.gpus[NvmlStub.bus(gpu)].level


async def test_what_is_read(stub: NvmlStub) -> None:
    stub.say({
        "gpus": 2, "1.field:3": 12, "1.field:94": 3, "1.temperature": 71, "1.field:91": 2, "1.field:213@1": 9,
        "1.fabric_state": 3, "1.banks_none": 0, "ecc:0:1:2": 4,
    })  # fmt: skip
    async with Watch(2).at_work() as watch:
        await eventually(watch.reads(1, ecc_corrected_volatile=12, pcie_replay=3, temperature_c=71), 20, "figures")
        await eventually(watch.reads(1, ecc_dram_corrected_aggregate=4, fabric_state=3, remap_failed=0), 20, "more")
        gpu = watch.books.gpus[NvmlStub.bus(1)]
        assert (gpu.identity.index, gpu.identity.uuid) == (1, "GPU-00000000-0000-0000-0000-000000000001")
        assert gpu.links[1] == {"recovered": 9}
        assert watch.books.driver == "595.45.04"
        assert (gpu.level, watch.facts) == ("ok", [])
    assert watch.able["gpu"] == ""


async def test_links_of_the_generations_before_hopper(stub: NvmlStub) -> None:
    """Their states are no fields, and their counters those of all links together."""
    stub.say({"field:91": 2, "field:59": 7, "link_state@0": 1, "link_state@1": 1})
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, nvlink_recovery=7), 20, "a reading")
        gpu = watch.books.gpus[NvmlStub.bus(0)]
        assert gpu.links == ({"state": 1}, {"state": 1})
        stub.say({"link_state@1": 0})
        await eventually(watch.told("nvlink_down"), 20, "the link")


async def test_what_is_not_supported_is_unknown_and_never_zero(stub: NvmlStub) -> None:
    stub.say({"error:nvmlDeviceGetSramEccErrorStatus": 3, "error:nvmlDeviceGetPowerUsage": 3})
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40, mig=0), 20, "a reading")
        assert watch.value(0, "sram_threshold_exceeded") is None
        assert watch.value(0, "power_mw") is None
        assert watch.value(0, "ecc_corrected_volatile") is None  # this field is not told
        assert watch.level(0) == "ok"


async def test_a_library_that_lacks_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetRowRemapperHistogram")
    stub = library(tmp_path, monkeypatch, without=lacks)
    stub.say(fabric_state=3)
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40, remap_failed=0), 20, "a reading")
        assert (watch.value(0, "fabric_state"), watch.value(0, "banks_none"), watch.level(0)) == (None, None, "ok")


async def test_instances_take_away_counters_and_nothing_is_wrong(stub: NvmlStub) -> None:
    stub.say({"mig": 1, "field:3": 5, "field:5": 6})
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, mig=1, ecc_corrected_aggregate=6), 20, "a reading")
        assert watch.value(0, "ecc_corrected_volatile") is None
        assert watch.value(0, "remap_failed") is None
        assert watch.level(0) == "ok"


async def test_the_recovery_action_is_seen_by_whoever_comes_late_and_cleared_by_none(stub: NvmlStub) -> None:
    stub.say({"0.field:230": 2})
    async with Watch(2).at_work() as watch:
        await eventually(watch.told("recovery_action", bus=NvmlStub.bus(0)), 20, "the finding")
        assert watch.books.gpus[NvmlStub.bus(0)].action == "drain_reboot"
        stub.say({"0.field:230": 0})
        await eventually(watch.told("recovery_action", CLEARED), 20, "its end")
        assert (watch.level(0), watch.level(1)) == ("ok", "ok")


@pytest.mark.parametrize(("code", "what"), [(15, "lost"), (28, "lost"), (16, "reset_required"), (999, "no_answer")])
async def test_a_gpu_that_answers_with_an_error_is_named_and_the_other_is_read(
    stub: NvmlStub, code: int, what: str
) -> None:
    async with Watch(2).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40), 20, "a reading")
        stub.say({"0.error": code, "1.temperature": 55})
        await eventually(watch.told(what, bus=NvmlStub.bus(0)), 20, "the finding")
        await eventually(watch.reads(1, temperature_c=55), 20, "the other")
        stub.say({"0.error": None})
        await eventually(watch.told(what, CLEARED), 20, "its return")
        assert (watch.level(0), watch.level(1)) == ("ok", "ok")


async def test_a_gpu_that_is_lost_to_a_field_of_a_call_that_succeeds(stub: NvmlStub) -> None:
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40), 20, "a reading")
        stub.say({"0.field_error:230": 15})
        await eventually(watch.told("lost", bus=NvmlStub.bus(0)), 20, "the finding")


@pytest.mark.parametrize("code", [1, 9])
async def test_a_driver_that_is_unloaded_under_a_call_is_no_word_on_the_gpu(stub: NvmlStub, code: int) -> None:
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40), 20, "a reading")
        stub.say({"error:nvmlDeviceGetFieldValues": code, "error:nvmlInitWithFlags": 9})
        await eventually(watch.told("nvml", bus=""), 20, "the finding")
        assert not watch.told("no_answer")()


KEEPER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-P", "-m", "rankpulse.agent.nvml_child", '{"gpus": []}'],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


async def test_a_process_in_a_call_that_hangs_does_not_outlive_an_agent_that_is_killed(stub: NvmlStub) -> None:
    stub.say({"hang:nvmlInitWithFlags": 1})
    keeper = await asyncio.create_subprocess_exec(sys.executable, "-c", KEEPER, stdout=asyncio.subprocess.PIPE)
    try:
        assert keeper.stdout
        child = int(await asyncio.wait_for(keeper.stdout.readline(), 20))
        keeper.kill()
        await eventually(lambda: state_of(child).partition(" in ")[0] in ("", "state Z"), 10, "its end")
    finally:
        stub.say({"hang:nvmlInitWithFlags": None})
        with contextlib.suppress(ProcessLookupError):
            keeper.kill()
        await keeper.wait()


async def test_a_gpu_whose_calls_hang_is_named_the_others_are_read_and_it_comes_back(stub: NvmlStub) -> None:
    stub.say(gpus=3)
    async with Watch(3).at_work() as watch:
        await eventually(watch.reads(2, temperature_c=40), 20, "a reading")
        stub.say({"1.hang": 1})
        await eventually(watch.told("probe_stuck", bus=NvmlStub.bus(1)), 20, "the finding")
        stub.say({"0.temperature": 61, "2.temperature": 62})
        await eventually(
            lambda: watch.reads(0, temperature_c=61)() and watch.reads(2, temperature_c=62)(), 20, "others"
        )
        assert [watch.level(number) for number in range(3)] == ["ok", "unknown", "ok"]
        stub.say({"1.hang": None})
        await eventually(watch.told("probe_stuck", CLEARED), 20, "its return")
        stub.say({"1.temperature": 63})
        await eventually(watch.reads(1, temperature_c=63), 20, "it is read with the others")
        assert watch.gpus.left == 0


async def test_a_process_that_the_kernel_does_not_let_go_gets_no_second(stub: NvmlStub) -> None:
    spared: list[NvmlProcess] = []

    async def cannot(process: NvmlProcess) -> bool:
        spared.append(process)
        return False

    watch = Watch(2, end=cannot)
    async with watch.at_work():
        await eventually(watch.reads(1, temperature_c=40), 20, "a reading")
        stub.say({"1.hang": 1})
        await eventually(lambda: watch.gpus.left == 1, 20, "one is left to itself")
        begun = watch.gpus.started
        tries = lambda: sum(fact.detail["what"] == "probe_stuck" for fact in watch.facts)  # noqa: E731
        counted = watch.books.gpus[NvmlStub.bus(1)].book.findings["probe_stuck"].count
        await eventually(
            lambda: watch.books.gpus[NvmlStub.bus(1)].book.findings["probe_stuck"].count >= counted + 3,
            20,
            "more tries",
        )
        assert (tries(), watch.gpus.left) == (1, 1)  # told once, however long it lasts
        stub.say({"0.temperature": 58})
        await eventually(watch.reads(0, temperature_c=58), 20, "the other")
        assert watch.gpus.started <= begun + 1  # the one that reads the other, and none for the GPU that hangs
        watch.gpus.end = NvmlProcess.end
        stub.say({"1.hang": None})
        for process in spared:
            await process.end()
        await eventually(watch.told("probe_stuck", CLEARED), 20, "its return")


async def test_nvml_as_a_whole_that_hangs_blames_no_gpu(stub: NvmlStub) -> None:
    stub.say({"hang:nvmlInitWithFlags": 1})
    async with Watch(2, settings={"start_timeout_s": 1.0}).at_work() as watch:
        await eventually(watch.told("nvml_stuck", bus=""), 20, "the finding")
        assert not watch.told("probe_stuck")()
        stub.say({"hang:nvmlInitWithFlags": None})
        await eventually(watch.told("nvml_stuck", CLEARED), 20, "its end")
        await eventually(watch.reads(1, temperature_c=40), 20, "a reading")


async def test_events_come_once_and_say_which_gpu(stub: NvmlStub) -> None:
    heard: list[tuple[Any, ...]] = []
    async with Watch(2, on_xid=lambda *told: heard.append(told)).at_work() as watch:
        await eventually(lambda: watch.able.get("gpu_events") == "" and watch.reads(1, mig=0)(), 20, "events")
        stub.event(1, 79)
        stub.event(0, 13, gi=3, ci=0)
        stub.event(0, 0, kind=0x8000)
        await eventually(lambda: len(heard) == 2, 20, "both")
        assert [(bus, code, *instances) for bus, code, _, *instances in heard] == [
            (NvmlStub.bus(1), 79, None, None),
            (NvmlStub.bus(0), 13, 3, 0),
        ]


async def test_without_a_kernel_log_the_catalogue_says_what_an_event_means(stub: NvmlStub) -> None:
    async with Watch(2).at_work() as watch:
        await eventually(lambda: watch.able.get("gpu_events") == "" and watch.reads(1, mig=0)(), 20, "events")
        for xid in (79, 13, 45, 45):
            stub.event(1, xid)
        await eventually(lambda: len(watch.books.gpus[NvmlStub.bus(1)].xids) == 3, 20, "all three")
        gpu = watch.books.gpus[NvmlStub.bus(1)]
        await eventually(lambda: gpu.xids[45].times == 2, 20, "the repeat")
        assert (gpu.level, gpu.action) == ("broken", "drain_reboot")
        assert watch.told("xid_79")()
        assert watch.told("xid_13", SEEN)()
        assert not any(fact.detail["what"] == "xid_45" for fact in watch.facts)


async def test_a_storm_of_events_is_few_lines_and_few_readings(stub: NvmlStub) -> None:
    heard: list[int] = []
    async with Watch(1, on_xid=lambda bus, code, *_: heard.append(code)).at_work() as watch:
        await eventually(lambda: watch.able.get("gpu_events") == "" and watch.reads(0, mig=0)(), 20, "events")
        for number in range(400):
            stub.event(0, 31 if number < 399 else 79)
        await eventually(lambda: 79 in heard, 20, "the last of them")
        assert len(heard) < 50


async def test_a_gpu_that_only_the_kernel_knows_is_told_of_and_not_asked_for(stub: NvmlStub) -> None:
    """In a container the kernel's log tells of GPUs of others, too."""
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40), 20, "a reading")
        watch.books.fault("0000:77:00", 79, "Xid 79", "drain_reboot", "cause", 0.0)
        stub.say({"0.temperature": 51})
        await eventually(watch.reads(0, temperature_c=51), 20, "another")
        assert [fact.detail["what"] for fact in watch.facts] == ["xid_79"]
        assert watch.books.gpus["0000:77:00"].level == "broken"


async def test_gpus_of_which_none_is_there(stub: NvmlStub) -> None:
    stub.say(gpus=0)
    async with Watch(None, wanted=2).at_work() as watch:
        await eventually(watch.told("missing", bus=""), 20, "the finding")
        assert "lists 0 of 2" in str(watch.facts[0].detail["text"])


async def test_events_that_a_gpu_does_not_have_cost_nothing(stub: NvmlStub) -> None:
    stub.say({"0.event_types": 0, "1.error:nvmlDeviceRegisterEvents": 3})
    async with Watch(2).at_work() as watch:
        await eventually(lambda: watch.reads(0, mig=0)() and watch.reads(1, mig=0)(), 20, "readings")
        stub.say({"1.temperature": 44})
        await eventually(watch.reads(1, temperature_c=44), 20, "more of them")
        assert (watch.facts, watch.able) == ([], {"gpu": ""})


async def test_a_wait_that_fails_is_made_anew(stub: NvmlStub) -> None:
    heard: list[int] = []
    async with Watch(1, on_xid=lambda bus, code, *_: heard.append(code)).at_work() as watch:
        await eventually(lambda: watch.able.get("gpu_events") == "", 20, "events")
        stub.say({"error:nvmlEventSetWait_v2": 15})
        await eventually(lambda: "no Xids any more" in watch.able["gpu_events"], 20, "their end")
        stub.say({"error:nvmlEventSetWait_v2": None})
        await eventually(lambda: watch.able["gpu_events"] == "" and watch.gpus.started == 1, 20, "events again")
        stub.event(0, 31)
        await eventually(lambda: heard == [31], 20, "the event")


async def test_a_wait_that_hangs_blinds_nobody(stub: NvmlStub) -> None:
    async with Watch(1).at_work() as watch:
        await eventually(lambda: watch.able.get("gpu_events") == "", 20, "events")
        stub.say({"hang:nvmlEventSetWait_v2": 1})
        await eventually(lambda: "hangs" in watch.able["gpu_events"], 20, "that they hang")
        stub.say({"0.temperature": 66})
        await eventually(watch.reads(0, temperature_c=66), 20, "a reading")
        assert watch.level(0) == "ok"


async def test_a_driver_that_is_loaded_anew_is_a_reset(stub: NvmlStub) -> None:
    async with Watch(2).at_work() as watch:
        await eventually(lambda: watch.able.get("gpu_events") == "" and watch.reads(1, mig=0)(), 20, "events")
        stub.event(1, 119)
        await eventually(watch.told("xid_119"), 20, "the fault")
        stub.say({"error:nvmlInitWithFlags": 9, "driver": 2})
        await eventually(watch.told("nvml"), 20, "that there is no driver")
        stub.say({"error:nvmlInitWithFlags": None, "1.index": 0, "0.index": 1})
        await eventually(watch.told("xid_119", CLEARED), 20, "that it was reset")
        await eventually(watch.told("nvml", CLEARED), 20, "that there is a driver")
        await eventually(lambda: watch.books.gpus[NvmlStub.bus(1)].identity.index == 0, 20, "its new number")
        assert watch.level(1) == "ok"


async def test_a_driver_upgraded_under_a_running_system_is_a_warning(stub: NvmlStub) -> None:
    stub.say({"error:nvmlInitWithFlags": 18})
    async with Watch(1).at_work() as watch:
        await eventually(watch.told("nvml"), 20, "the finding")
        (fact,) = watch.facts
        assert (fact.detail["level"], fact.detail["bus"]) == ("watch", "")
        assert "new jobs fail" in str(fact.detail["text"])


async def test_what_was_there_before_the_upgrade_is_read_on(stub: NvmlStub) -> None:
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40), 20, "a reading")
        stub.say({"error:nvmlInitWithFlags": 18, "0.temperature": 48})
        await eventually(watch.reads(0, temperature_c=48), 20, "a reading by the old library")
        assert watch.facts == []


async def test_an_unknown_error_at_the_start_is_no_word_on_the_gpus(stub: NvmlStub) -> None:
    """As after a reload of systemd in an old container: the host is well."""
    stub.say({"error:nvmlInitWithFlags": 999})
    async with Watch(1).at_work() as watch:
        await eventually(watch.told("nvml", bus=""), 20, "the finding")
        (fact,) = watch.facts
        assert (fact.detail["level"], "compare with the host" in str(fact.detail["text"])) == ("unknown", True)


async def test_an_end_that_is_called_off_in_the_turn_in_which_the_process_dies() -> None:
    """The cancellation is not lost: with it the keeper, and so the agent, would go on for ever."""
    waits, dies = asyncio.Event(), asyncio.Event()

    class Dying:
        returncode, pid = None, 1

        def kill(self) -> None: ...

        async def wait(self) -> None:
            waits.set()
            await dies.wait()

    ending = asyncio.create_task(NvmlProcess(cast(Any, Dying()), {}, 1.0, Clock()).end())
    await waits.wait()
    dies.set()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending


async def test_gpus_that_cannot_be_asked_any_more_are_not_called_well(stub: NvmlStub) -> None:
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40), 20, "a reading")
        watch.gpus.command = (sys.executable, "-c", "raise SystemExit(3)")
        (process,) = watch.gpus._running
        os.kill(process.pid, signal.SIGKILL)
        await eventually(watch.told("unheard"), 20, "the finding")
        assert watch.level(0) == "unknown"
        assert "ended by itself" in watch.able["gpu"]


@pytest.mark.parametrize(("code", "text"), [(12, "no libnvidia-ml"), (4, "may not ask")])
async def test_what_nvml_lacks_is_a_capability_and_no_fault(stub: NvmlStub, code: int, text: str) -> None:
    stub.say({"error:nvmlInitWithFlags": code})
    async with Watch(1).at_work() as watch:
        await eventually(lambda: text in watch.able.get("gpu", ""), 20, "what it lacks")
        assert watch.facts == []


async def test_without_pynvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('none here')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    async with Watch(1).at_work() as watch:
        await eventually(lambda: "pynvml is not installed" in watch.able.get("gpu", ""), 20, "what it lacks")
        assert watch.facts == []


async def test_gpus_that_only_the_driver_can_list_and_one_that_is_missing(stub: NvmlStub) -> None:
    async with Watch(None, wanted=3).at_work() as watch:
        await eventually(watch.told("missing", bus=""), 20, "the finding")
        await eventually(watch.reads(1, temperature_c=40), 20, "a reading")
        stub.say(gpus=3, driver=2)
        known = list(watch.books.gpus)
        assert known == [NvmlStub.bus(0), NvmlStub.bus(1)]


async def test_slow_calls_are_told_of_and_asked_for_less_often(stub: NvmlStub) -> None:
    stub.say({"0.slow:nvmlDeviceGetPowerUsage": 400})
    settings = {"slow_call_s": 0.2, "call_timeout_s": 10.0}
    async with Watch(1, settings=settings).at_work() as watch:
        await eventually(watch.told("slow_calls"), 20, "the finding")
        turn = watch.books.plan._turns[NvmlStub.bus(0)]
        await eventually(lambda: turn.every_s >= 0.8, 20, "longer pauses")
        stub.say({"0.slow:nvmlDeviceGetPowerUsage": 0})
        await eventually(watch.told("slow_calls", CLEARED), 30, "its end")


async def test_what_a_gpu_does_not_have_is_not_asked_for_each_time(stub: NvmlStub) -> None:
    stub.say({"0.slow:nvmlDeviceGetRepairStatus": 400})  # and then: NOT_SUPPORTED
    async with Watch(1, settings={"slow_call_s": 0.2, "call_timeout_s": 10.0}).at_work() as watch:
        await eventually(watch.told("slow_calls"), 20, "the first time")
        await eventually(watch.told("slow_calls", CLEARED), 20, "that it is left out")


async def test_a_process_that_is_killed_is_followed_by_another(stub: NvmlStub) -> None:
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40), 20, "a reading")
        (process,) = watch.gpus._running
        os.kill(process.pid, signal.SIGKILL)
        stub.say({"0.temperature": 47})
        await eventually(watch.reads(0, temperature_c=47), 20, "a reading by another")
        assert watch.facts == []


@pytest.mark.parametrize(
    "said", ["''", "'{'", "'[]'", "'{\"bus\": 7}'", '\'{"values": {"a": "b"}}\'', "'x' * (1 << 19)"]
)
async def test_a_process_that_says_nothing_sound_breaks_nothing(said: str) -> None:
    code = f"import sys, time; sys.stdout.write({said} + chr(10)); sys.stdout.flush(); time.sleep(0.3)"
    async with Watch(1, command=(sys.executable, "-c", code)).at_work() as watch:
        await eventually(lambda: watch.gpus.started >= 2, 20, "a second one")
        assert watch.facts == []


async def test_where_there_are_no_gpus_no_process_is_started() -> None:
    watch = Watch(1)
    watch.gpus.devices = Devices(lambda: False)
    async with watch.at_work():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (watch.gpus.started, watch.able, watch.facts) == (0, {}, [])


async def test_no_process_outlives_the_keeper(stub: NvmlStub) -> None:
    async with Watch(1).at_work() as watch:
        await eventually(watch.reads(0, temperature_c=40), 20, "a reading")
        (process,) = watch.gpus._running
    assert process.gone
