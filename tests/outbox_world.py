"""A fleet of which webhooks are told: a receiver that knows what it has had, as the convention asks of receivers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from core_world import DRILL, World

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.settings import Settings, WebhookSettings
from rankpulse.core.targets import WebhookTarget

PAGER = WebhookTarget(name="pager", url="https://pager.example/hook", secret_file="/key")


def settings(*targets: WebhookTarget, **change: Any) -> Settings:
    return msgspec.structs.replace(DRILL, webhook=WebhookSettings(targets=targets or (PAGER,), **change))


@dataclass
class Receiver:
    """Answers at once; counts what it is sent, and what that comes to by the ids that it has not had before."""

    answer: Callable[[ev.Post], str] = lambda post: ev.TAKEN
    attempts: list[tuple[float, str, str]] = field(default_factory=list)  # when, to whom, what
    had: list[dict[str, Any]] = field(default_factory=list)  # each effect

    def take(self, post: ev.Post, now: float) -> ev.Posted:
        outgoing, outcome = post.outgoing, self.answer(post)
        event = msgspec.json.decode(outgoing.body)
        self.attempts.append((now, outgoing.target, outgoing.event))
        known = {(one["id"], one["target"]) for one in self.had}
        if outcome == ev.TAKEN and (event["id"], outgoing.target) not in known:
            self.had.append({**event, "target": outgoing.target})
        return ev.Posted(outgoing.event, outgoing.target, post.number, outcome, "answered 500", 0.0, now)

    def types(self, target: str = "pager") -> list[str]:
        return [one["type"] for one in self.had if one["target"] == target]


@dataclass
class Told(World):
    """Every post is answered before the next tick, unless `lost` says that the answer never comes."""

    receiver: Receiver = field(default_factory=Receiver)
    lost: bool = False

    def tick(self) -> None:
        super().tick()
        posts, self.posts = self.posts, []
        for post in posts:
            posted = self.receiver.take(post, self.now)
            if not self.lost:
                self.engine.step(posted)

    def outbox(self) -> dict[str, r.Outgoing]:
        prefix = self.keys.outbox()
        return {
            key.removeprefix(prefix): codec.decode(r.Outgoing, data)
            for key, (data, _) in sorted(self.store.items())
            if key.startswith(prefix)
        }

    def ask(self, kind: str, about: str = "") -> r.Request:
        request = r.Request(
            id=f"7-{self.revision}", kind=kind, run_uid="", author="ann", reason="why not", at=0.0, about=about
        )
        self.put(self.keys.request(request.id), request)
        return request

    def job_dies(self) -> None:
        """A launch that nothing restarts loses a worker: a person has to start it again."""
        first, *others = self.launch({"n1": 1, "n2": 1}, meeting=f"m{self.revision}", elastic=False)
        self.run(3)
        self.ends(first, signal=9)
        for proc in others:
            self.ends(proc, signal=15, code=None)
        self.run(3)
