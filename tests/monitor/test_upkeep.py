"""History is forgotten late enough, and alarms are said."""

import logging

import pytest
from monitor_bench import Time

from rankpulse.monitor.upkeep import KEEP_REVISIONS, KEEP_S, History, Upkeep
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.api import Denied, StoreStatus
from rankpulse.store.memory import MemoryStore


def upkeep(store: MemoryStore, time: Time, leads: bool = True) -> Upkeep:
    return Upkeep(store, time.clock(), Vitals(), every_s=300.0, leads=lambda: leads)


@pytest.mark.parametrize(
    ("age_s", "behind", "expected"),
    [
        (KEEP_S - 1, 5000, 0),  # not old enough
        (KEEP_S, 5000, 2000),  # what was there five minutes ago
        (KEEP_S, 100, 2100 - KEEP_REVISIONS),  # a quiet store keeps its last thousand
    ],
)
def test_only_what_is_old_and_far_behind_is_forgotten(age_s: float, behind: int, expected: int) -> None:
    history = History()
    history.note(0.0, 2000)
    history.note(age_s, 2000 + behind)
    assert history.forgettable(age_s) == expected


def test_nothing_is_known_nothing_is_forgotten() -> None:
    assert History().forgettable(1e9) == 0


async def compacts(leads: bool) -> bool:
    time = Time()
    store = MemoryStore(time)
    care = upkeep(store, time, leads)
    for _ in range(60):
        for _ in range(100):
            await store.put("k", b"")
        await care.once()
        time.seconds += 15
    return store._compacted > 0


async def test_the_leader_compacts_and_a_standby_does_not() -> None:
    assert await compacts(leads=True)
    assert not await compacts(leads=False)


async def test_an_alarm_is_said_once_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    store = MemoryStore(time)
    care = upkeep(store, time)
    store.full(True)
    with caplog.at_level(logging.INFO, "rankpulse.monitor"):
        await care.once()
        await care.once()
        store.full(False)
        await care.once()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "alarm disarm" in caplog.text


async def test_a_refused_status_is_said_once_and_an_outage_is_left_to_the_loss_of_sight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Forbidden(MemoryStore):
        async def status(self) -> StoreStatus:
            raise Denied("no permission")

    for store, lines in ((Forbidden(Time()), 1), (MemoryStore(Time()), 0)):
        store.outage(True)
        care = upkeep(store, Time())
        caplog.clear()
        with caplog.at_level(logging.INFO, "rankpulse.monitor"):
            await care.once()
            await care.once()
        assert len(caplog.records) == lines
