"""What is done about a broken GPU by which no job is seen to suffer: whether its node is kept out. Pure.

A job that stands still, or has lost a worker by it, is the affair of `core.policy`.
"""

from typing import Final, NamedTuple

from rankpulse.core import policy
from rankpulse.core.health_book import VENDOR
from rankpulse.core.naming import names_in_words
from rankpulse.core.policy import CERTAIN, Choice

COMMANDS: Final = 2  # of more nodes one command stands for all


class Case(NamedTuple):
    """How it stands."""

    nodes: tuple[str, ...]  # on which something is broken
    why: str  # in a few words, for the cordon
    action: str  # the heaviest that is asked for
    advice: str
    confidence: float
    out: frozenset[str] = frozenset()  # of the nodes, those that no round includes by now
    busy: bool = False  # a job runs on one of them
    plain: bool = False  # a job that meets through torch's own rendezvous
    paused: str = ""  # why nobody is to be bothered: all jobs there are in a person's hands
    unarmed: str = ""  # why orders may not be given, "" where they may
    refusal: str = ""  # why nothing is done now: budgets, sight, too many at once


class Move(NamedTuple):
    choice: Choice
    cordon: bool = False  # keep the nodes that are in still out, from now on; jobs leave them


def choose(case: Case) -> Move:
    left = tuple(node for node in case.nodes if node not in case.out)
    if not left:
        return _page(f"{names_in_words(case.nodes, 4)}: kept out of all rounds. What is left to do: {case.advice}")
    hand = proposal(left, case.why, busy=case.busy)
    if case.paused:
        return Move(Choice(policy.NONE, f"{case.paused}. By hand: {hand}"))
    if case.confidence < CERTAIN:
        return _page(f"whether the device is broken is not certain: look at it first. Then: {hand}")
    if case.action == VENDOR:
        return _page(f"a person has to see to it: {case.advice}. Until then: {hand}")
    keep = f"keep {names_in_words(left, 4)} out of all rounds{_leaving(case)}"
    if case.unarmed:
        return Move(Choice(policy.OBSERVE, f"would {keep}, but {case.unarmed}. By hand: {hand}"))
    if case.refusal:
        return _page(f"would {keep}, but {case.refusal}. By hand: {hand}")
    if case.plain:
        return _page(f"its job meets through torch's own rendezvous, which takes no word of ours. By hand: {hand}")
    if case.busy:
        text = "the device is broken and its job goes on: it leaves the node after its next checkpoint"
        return Move(Choice(policy.DRAIN, text), cordon=True)
    return Move(Choice(policy.PAGE, f"no job runs there: no round includes it from now on. {case.advice}"), cordon=True)


def proposal(nodes: tuple[str, ...], why: str, *, busy: bool) -> str:
    """The command that keeps them out, as it is typed."""
    drain = " --drain" if busy else ""
    quoted = "'" + why.replace("'", "’") + "'"
    commands = [f"rankpulse cordon {node}{drain} --reason {quoted}" for node in nodes[:COMMANDS]]
    more = f"; likewise {names_in_words(nodes[COMMANDS:], 4)}" if len(nodes) > COMMANDS else ""
    return "; ".join(commands) + more


def _leaving(case: Case) -> str:
    return ", and its job leaves it after the next checkpoint" if case.busy else ""


def _page(reason: str) -> Move:
    return Move(Choice(policy.PAGE, reason))
