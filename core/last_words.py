"""Last words: whether a restart asks the survivors for a checkpoint first, and what came of it. Pure.

They save the state that is in memory now. So they are worth asking for only where that state is not itself what is
wrong, and where the job has said that it can do so.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core.records import CheckpointState, Incident, Order, Scalar
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.views import RoundView, process_of
from rankpulse.core.words import printable

KIND: Final = "last_words"  # of such checkpoints
ASKED: Final = "asked"  # nobody has answered yet
SAVED: Final = "saved"
REFUSED: Final = "refused"
UNANSWERED: Final = "unanswered"
OUTCOMES: Final = (SAVED, REFUSED, UNANSWERED)
_WEIGHT: Final = {"": 0, ASKED: 1, UNANSWERED: 2, REFUSED: 3, SAVED: 4}  # of what nodes say, which counts for all
BAD_STATE: Final = {
    d.NON_FINITE: "numbers are not finite",
    d.SILENT_CORRUPTION: "replicas differ",
    d.NUMERICAL: "a computation came to no number",
}
_BROKEN: Final = (d.GPU_FAULT, d.NVLINK_DOMAIN)
STOPPED: Final = "TtZX"  # states of processes that answer nothing
_NAMED_MAX: Final = 256  # ranks
_WHY_MAX: Final = 300
SLACK_S: Final = 2.0  # beyond the limit, for an agent to see that it has passed and to say so


class Ask(NamedTuple):
    """`within_s`: how long the survivors have, 0: they are not asked. `reason`: why not, or what it rests on."""

    within_s: float
    reason: str


class Words(NamedTuple):
    """What one node's agent says came of asking. `outcome` "": nobody was asked."""

    outcome: str = ""
    step: int = -1
    absent: tuple[int, ...] = ()
    reason: str = ""


NOBODY: Final = Ask(0.0, "")


def asked(incident: Incident, others: Iterable[Incident], state: CheckpointState | None, most_s: float) -> Ask:
    """Whether the order for this incident asks. others: open incidents of its round. most_s: the policy's limit."""
    if incident.resume_before_step >= 0:
        return Ask(0.0, f"it is to go on from before step {incident.resume_before_step}")
    for one in (incident, *others):
        if one.klass in BAD_STATE:
            return Ask(0.0, f"{BAD_STATE[one.klass]} (incident {one.id}): the state itself is what is wrong")
    if state is None or state.last_words_s <= 0:
        return Ask(0.0, "the job does not offer them: CheckpointManager(last_words=True)")
    if state.last_words_round != incident.round:
        return Ask(0.0, f"round {incident.round} has not come so far that it could offer them")
    if most_s <= 0:
        return Ask(0.0, "policy.last_words_max_s is 0")
    return Ask(min(state.last_words_s, most_s), f"the job offers them within {state.last_words_s:g} s")


def absent(incident: Incident, round_: RoundView, lost: Collection[str]) -> tuple[int, ...]:
    """Ranks for whose word nobody is to wait: dead, stopped, on a lost node, or on a device that is broken."""
    gone = {rank for rank, member in round_.members.items() if process_of(member) in round_.exits}
    gone |= {rank for rank, progress in round_.progress.items() if progress.state in STOPPED}
    gone |= {rank for rank, member in round_.members.items() if member.node in lost}
    if incident.klass in _BROKEN:
        gone |= {member.rank for member in incident.culprits}
    return tuple(sorted(gone))


def given(order: Order) -> str:
    """As a part of the sentence that tells of the order."""
    return f", after last words of those that live (up to {order.last_words_s:g} s)" if order.last_words_s > 0 else ""


def told(words: Words) -> dict[str, Scalar]:
    """As an agent writes it into its observation; nothing where nobody was asked."""
    if not words.outcome:
        return {}
    said: dict[str, Scalar] = {"last_words": words.outcome, "last_words_why": words.reason[:_WHY_MAX]}
    if words.outcome == SAVED:
        said |= {"last_words_step": words.step, "last_words_absent": ",".join(map(str, words.absent[:_NAMED_MAX]))}
    return said


def read(detail: Mapping[str, Scalar]) -> Words:
    """What `told` wrote; the text of an agent is believed as far as it is sound."""
    outcome, step = detail.get("last_words"), detail.get("last_words_step")
    if outcome not in OUTCOMES:
        return Words()
    why, ranks = printable(detail.get("last_words_why") or "", _WHY_MAX), str(detail.get("last_words_absent") or "")
    absent = tuple(
        int(one) for one in ranks.split(",")[:_NAMED_MAX] if one.isascii() and one.isdigit() and len(one) < 10
    )
    if outcome != SAVED:
        return Words(str(outcome), reason=why)
    return Words(SAVED, step, absent, why) if type(step) is int and step >= 0 else Words()


def story(words: Iterable[tuple[str, Words]]) -> Iterator[str]:
    """Lines for what these nodes say, by node."""
    for node, one in words:
        if one.outcome == SAVED:
            yield f"last words: {saved(one.step, one.absent)}"
        elif one.outcome == REFUSED:
            yield f"last words refused: {one.reason or 'no reason was given'}"
        elif one.outcome == UNANSWERED:
            yield f"no last words of {node}: {one.reason or 'nobody answered'}"


def saved(step: int, absent: Collection[int]) -> str:
    return f"step {step}" + (f", without {ranks_in_words(absent)}" if absent else "")


def is_of(incident: Incident, step: int | None) -> bool:
    """Whether that step is what those that lived had saved."""
    return incident.last_words == SAVED and step == incident.last_words_step


def in_words(incident: Incident) -> str:
    """What came of it so far; "" where nobody was asked. The reason, and who was absent, are in its story."""
    if incident.last_words == SAVED:
        return f"those that lived saved step {incident.last_words_step}"
    return {
        ASKED: "asked for, no answer yet",
        REFUSED: "refused: the job resumes from its last checkpoint",
        UNANSWERED: "nobody answered: the job resumes from its last checkpoint",
    }.get(incident.last_words, "")


def heard(incident: Incident, words: Iterable[Words]) -> Incident:
    """The incident with what nodes say of it; one that saved counts for all."""
    for one in words:
        if _WEIGHT.get(one.outcome, 0) > _WEIGHT.get(incident.last_words, 0):
            step = one.step if one.outcome == SAVED else -1
            incident = msgspec.structs.replace(incident, last_words=one.outcome, last_words_step=step)
    return incident
