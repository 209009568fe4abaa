"""What each stage of the pipeline calls, step by step: the 1F1B schedule with tensor parallel layers inside.

Ranks of one stage run the same program; groups and peers stand in it by kind and direction.
"""

from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, TypeAlias

COLLECTIVE: Final = "collective"
P2P: Final = "p2p"
WAIT: Final = "wait"  # the device waits for what runs beside it in the groups of a kind
SYNC: Final = "sync"  # the host waits for the device

NEXT, BEFORE = 1, -1


class Call(NamedTuple):
    """One line of a program."""

    what: str
    kind: str = ""  # of the group
    op: str = ""
    size: int = 0
    site: str = ""
    beside: bool = False  # the device goes on without waiting
    legs: tuple[tuple[str, int], ...] = ()  # of a batch of sends and receives: (send or recv, NEXT or BEFORE)
    dtype: str = "bfloat16"


Program: TypeAlias = list[Call]


@dataclass(frozen=True)
class Style:
    """In what programs of this kind differ from each other."""

    microbatches: int = 8
    layers: int = 2  # per stage
    hidden: int = 1 << 16
    sequence_parallel: bool = False
    experts: bool = False
    p2p_sync: bool = True  # the host waits for the device after each send and receive, as Megatron does by default
    buckets: int = 3
    sharded: bool = False  # the optimizer is: reduce-scatter and all-gather instead of all-reduce
    run_ahead: int = 1000  # calls by which the host may be ahead of the device
    steps: int = 3


def draw_style(random: Random, experts: bool) -> Style:
    return Style(
        microbatches=random.choice((4, 8, 12)),
        layers=random.choice((1, 2, 3)),
        sequence_parallel=random.random() < 0.5,
        experts=experts,
        p2p_sync=random.random() < 0.5,
        buckets=random.randint(1, 4),
        sharded=random.random() < 0.5,
        run_ahead=random.choice((16, 128, 1000)),
    )


def stage_program(stage: int, stages: int, style: Style) -> Program:
    """All steps of one stage."""
    writer = _Writer(stage, stages, style)
    for step in range(style.steps):
        writer.step(step)
    return writer.calls


class _Writer:
    def __init__(self, stage: int, stages: int, style: Style) -> None:
        self.stage, self.stages, self.style = stage, stages, style
        self.first, self.last = stage == 0, stage == stages - 1
        self.calls: Program = []

    def step(self, number: int) -> None:
        """One step: all microbatches, gradients, norm, optimizer, now and then the timers of all ranks."""
        many = self.style.microbatches
        warm = min(self.stages - self.stage - 1, many)
        self._warm_up(warm)
        self._steady(many - warm, is_end=warm == 0)
        self._cool_down(warm)
        self._reduce()
        if number % 2:
            self._collective("world", "all_reduce", 16, "timers.log", dtype="float32")

    def _warm_up(self, warm: int) -> None:
        for _ in range(warm):
            self._p2p("recv_forward", ("recv", BEFORE))
            self._forward()
            self._p2p("send_forward", ("send", NEXT))

    def _steady(self, many: int, is_end: bool) -> None:
        if many:
            self._p2p("recv_forward", ("recv", BEFORE))
        for i in range(many):
            self._forward()
            self._p2p("send_forward_recv_backward", ("send", NEXT), ("recv", NEXT))
            self._backward(is_end=is_end and i == many - 1)
            if i == many - 1:
                self._p2p("send_backward", ("send", BEFORE))
            else:
                self._p2p("send_backward_recv_forward", ("send", BEFORE), ("recv", BEFORE))

    def _cool_down(self, warm: int) -> None:
        for i in range(warm):
            self._p2p("recv_backward", ("recv", NEXT))
            self._backward(is_end=i == warm - 1)
            self._p2p("send_backward", ("send", BEFORE))

    def _forward(self) -> None:
        if self.first or self.last:
            self._collective("tp", "broadcast", 4096, "data.broadcast", dtype="int64")
        if self.first:
            self._collective("tp", "all_reduce", self.style.hidden, "embedding.forward")
        for _ in range(self.style.layers):
            self._layer("forward")
        if self.last:
            self._collective("tp", "all_reduce", 8192, "cross_entropy.forward", dtype="float32")

    def _backward(self, is_end: bool) -> None:
        for layer in range(self.style.layers):
            self._layer("backward")
            if is_end and layer < self.style.buckets:
                self._bucket(layer)
        for bucket in range(self.style.layers, self.style.buckets if is_end else 0):
            self._bucket(bucket)

    def _layer(self, way: str) -> None:
        for part in ("attention", "mlp"):
            if self.style.experts and part == "mlp":
                self._collective("ep", "all_to_all", self.style.hidden, f"experts.{way}.dispatch")
                self._collective("ep", "all_to_all", self.style.hidden, f"experts.{way}.combine")
            elif self.style.sequence_parallel:
                self._collective("tp", "all_gather", self.style.hidden, f"{part}.{way}.gather")
                self._collective("tp", "reduce_scatter", self.style.hidden, f"{part}.{way}.scatter")
            else:
                self._collective("tp", "all_reduce", self.style.hidden, f"{part}.{way}")

    def _bucket(self, number: int) -> None:
        op = "reduce_scatter" if self.style.sharded else "all_reduce"
        # the reducer calls from C++: no line of the program stands for it
        self._collective("dp", op, (number + 1) * 1_000_003, "", beside=True, dtype="float32")

    def _reduce(self) -> None:
        self.calls.append(Call(WAIT, "dp"))
        if self.stages > 1 and (self.first or self.last):
            self._collective("embedding", "all_reduce", 777_216, "finalize.embedding", dtype="float32")
        self._collective("mp", "all_reduce", 1, "clip_grad_norm", dtype="float32")
        self.calls.append(Call(SYNC))
        if self.style.sharded:
            self._collective("dp", "all_gather", 5_000_015, "optimizer.gather")
        if self.last:
            self._collective("dp", "all_reduce", 2, "loss.mean", dtype="float32")
            self.calls.append(Call(SYNC))

    def _collective(
        self, kind: str, op: str, size: int, site: str, beside: bool = False, dtype: str = "bfloat16"
    ) -> None:
        self.calls.append(Call(COLLECTIVE, kind, op, size, site, beside, (), dtype))

    def _p2p(self, site: str, *legs: tuple[str, int]) -> None:
        there = tuple(leg for leg in legs if 0 <= self.stage + leg[1] < self.stages)
        if not there:
            return
        self.calls.append(Call(P2P, "pp", "", self.style.hidden, site, False, there))
        if self.style.p2p_sync:
            self.calls.append(Call(SYNC))
