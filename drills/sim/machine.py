"""A machine: what runs on it runs while it is up and not frozen; its agent, while that lives and does not stall."""

from collections.abc import Callable
from typing import Any

from rankpulse.drills.sim.clockwork import Heap

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Machine:
    """Times and gates of one node. `boot` and `life` count: what was meant for an earlier one is dropped."""

    def __init__(self, heap: Heap, name: str, rack: str) -> None:
        self.heap, self.name, self.rack = heap, name, rack
        self.up, self.agent_up = True, False
        self.frozen = self.stalled = 0  # by how many faults at once
        self.boot, self.life = 1, 0
        self.utc_off = 0.0
        self._waiting: list[tuple[int, Call]] = []  # for the machine to go on
        self._agent_waiting: list[tuple[int, Call]] = []  # for its agent to

    @property
    def awake(self) -> bool:
        return self.up and not self.frozen

    @property
    def agent_awake(self) -> bool:
        return self.awake and self.agent_up and not self.stalled

    # --- what happens on it

    def after(self, delay_s: float, call: Callable[..., Any], *args: Any) -> None:
        """On this machine, in this boot."""
        self.heap.after(delay_s, self._happen, self.boot, call, args)

    def _happen(self, boot: int, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if boot != self.boot or not self.up:
            return
        if self.frozen:
            self._waiting.append((boot, (call, args)))
        else:
            call(*args)

    def agent_at(self, life: int, when: float, call: Callable[..., Any], *args: Any) -> None:
        """By its agent, in this life of it."""
        self.heap.at(when, self._act, life, call, args)

    def agent_after(self, delay_s: float, call: Callable[..., Any], *args: Any) -> None:
        self.heap.after(delay_s, self._act, self.life, call, args)

    def _act(self, life: int, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if life != self.life or not self.agent_up:
            return
        if not self.agent_awake:
            self._agent_waiting.append((life, (call, args)))
        else:
            call(*args)

    # --- what is done to it

    def freeze(self, on: bool) -> None:
        self.frozen += 1 if on else -1
        self._go_on()

    def stall(self, on: bool) -> None:
        self.stalled += 1 if on else -1
        self._go_on()

    def _go_on(self) -> None:
        if self.awake:
            waiting, self._waiting = self._waiting, []
            for boot, (call, args) in waiting:
                self.heap.after(0.0, self._happen, boot, call, args)
        if self.agent_awake:
            mine, self._agent_waiting = self._agent_waiting, []
            for life, (call, args) in mine:
                self.heap.after(0.0, self._act, life, call, args)

    def lose_agent(self) -> None:
        self.agent_up = False
        self.life += 1
        self._agent_waiting.clear()

    def lose(self) -> None:
        self.up = False
        self.boot += 1
        self._waiting.clear()
        self.lose_agent()

    def come_back(self) -> None:
        self.up = True
