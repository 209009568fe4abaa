"""Last words as the desk has it: whether an order for an incident asks for them, and what the story says of that."""

from typing import NamedTuple

import msgspec

from rankpulse.core import last_words
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.fold import RESTART
from rankpulse.core.last_words import Ask
from rankpulse.core.lost import is_lost
from rankpulse.core.views import RunView


class Asked(NamedTuple):
    """Fields of an order."""

    within_s: float = 0.0
    absent: tuple[int, ...] = ()


def of_order(desk: Desk, incident: r.Incident, run: RunView, kind: str) -> Asked:
    """Only an order that ends a round by way of torchrun has time for it."""
    ask = decided(desk, incident) if kind == RESTART else last_words.NOBODY
    if ask.within_s <= 0:
        return Asked()
    lost = {name for name in run.current.nodes() if is_lost(desk, name)}
    return Asked(ask.within_s, last_words.absent(incident, run.current, lost))


def decided(desk: Desk, incident: r.Incident) -> Ask:
    """Whether those that live are asked to save before their round is ended."""
    round_ = (incident.run_uid, incident.round)
    others = [one for one in desk.book.open() if (one.run_uid, one.round) == round_]
    state = desk.folder.checkpoints.of(incident.run_uid)
    return last_words.asked(incident, others, state, desk.settings.policy.last_words_max_s)


def noted(desk: Desk, incident: r.Incident, order: r.Order) -> r.Incident:
    """The order stands: that it asks, or why not. Of a job that saves nothing with us there is nothing to say."""
    if order.last_words_s > 0:
        return desk.change(incident, lambda i: last_words.heard(i, [last_words.Words(last_words.ASKED)]))
    ask = decided(desk, incident)
    if ask.within_s > 0 or desk.folder.checkpoints.of(order.run_uid) is None:
        return incident
    return desk.note(incident, f"no last words are asked for: {ask.reason}")


def unasked(desk: Desk, incident: r.Incident, run: RunView) -> r.Incident:
    """Survivors may have saved by themselves: where nobody asked or heard them, or a step further, as they were ended.

    That is known once the next round has loaded it.
    """
    state = desk.folder.checkpoints.of(incident.run_uid)
    if state is None or state.kind != last_words.KIND or state.skipped:
        return incident
    if state.loaded_round != run.current.number or not incident.round <= state.saved_round < state.loaded_round:
        return incident
    if last_words.is_of(incident, state.loaded_step):
        return incident
    own = {"last_words": last_words.SAVED, "last_words_step": state.loaded_step}
    incident = desk.change(incident, lambda i: msgspec.structs.replace(i, **own))
    return desk.note(incident, f"those that lived had saved step {state.loaded_step} by themselves")


def patience_s(order: r.Order) -> float:
    """While survivors save, nothing else is due: so much longer has every rung."""
    return order.last_words_s + last_words.SLACK_S if order.last_words_s > 0 else 0.0
