"""One incident in words, for a tired person: what happened and who first, why, and how it went on. Pure.

However many ranks there are: counts and ranges, never a wall of numbers. `rankpulse explain` and the page say the same.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rankpulse.core import last_words, rank_words, todo
from rankpulse.core.incident_sections import cut, devices
from rankpulse.core.naming import names_in_words
from rankpulse.core.records import Finding, Incident, Member
from rankpulse.core.resumption import steps
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.stages import GOING_ON

ONE_BY_ONE: Final = 4  # culprits; more are counted
TRAIL_MAX: Final = 60
FIXES: Final = {  # what was done the last time
    "adopt": "torchelastic's own restart",
    "restart": "the last fix, a restart,",
    "restart_without": "the last fix, a restart without the node,",
    "release": "what torchelastic did by itself",
    "drain": "leaving the node after a checkpoint",
}


def headline(i: Incident, found: Finding | None) -> str:
    """What happened and who, with where it runs and what it was doing."""
    agreed = found is not None and found.klass == i.klass
    text = found.summary if agreed and found is not None and found.summary else i.summary
    row = found.culprits[0] if agreed and found is not None and len(found.culprits) == 1 else None
    if row is None:
        return f"{text or i.klass}{_where(i) if agreed else ''}"
    facts, name = rank_words.facts(row), f"rank {row.rank} "
    if not text.startswith(name):
        return f"{text} [{rank_words.place(row)}{': ' * bool(facts)}{facts}]"
    if not text.startswith(f"{name}on "):
        text = f"{rank_words.place(row)} {text[len(name) :]}"
    return f"{text} [{facts}]" if facts else text


def _where(i: Incident) -> str:
    """Of several culprits: who they are, and on which nodes."""
    if len(i.culprits) < 2:
        return ""
    nodes = (member.node for member in i.culprits)
    return f" [{ranks_in_words(member.rank for member in i.culprits)} on {names_in_words(nodes)}]"


def facts(i: Incident, found: Finding | None, when: Callable[[float], str]) -> Iterator[tuple[str, object]]:
    """Name and value, the next step first; a list takes a line each. `when`: how a UTC time is shown."""
    yield "what to do", list(todo.todo(i, found))
    if found is not None and found.seen.times:
        yield "seen before", _seen(found)
    if culprits := list(culprits_in_words(i, found)):
        yield "culprit", culprits
    if found is not None and found.waits:
        yield "who waits", cut(found.waits)
    if i.faults:
        yield "devices", cut(devices(i))
    if i.cascade:
        yield "cascade", cascade(i)
    if i.reasons or (found is not None and found.reasons):
        yield "why", cut(i.reasons or (found.reasons if found is not None else ()))
    yield "confidence", sureness(i.confidence)
    yield "incident", f"{i.id}, class {i.klass}{_kind(found)}, {_state(i)}"
    yield "opened", when(i.opened_at)
    if i.run_uid:
        yield "run", f"{i.run_uid}, round {i.round}" + (f", label {i.run_id}" if i.run_id else "")
    if i.nodes:
        yield "nodes", names_in_words(i.nodes)
    yield "action", f"{i.action}: {i.action_reason}" + (f" (order {i.order_id})" if i.order_id else "")
    if words := last_words.in_words(i):
        yield "last words", words
    yield "times", ", ".join(times(i))


def records(i: Incident) -> Iterator[tuple[str, Iterable[str]]]:
    """Its story, and the records that it rests on."""
    trail = i.trail if len(i.trail) <= TRAIL_MAX else (*i.trail[: TRAIL_MAX // 2], None, *i.trail[-TRAIL_MAX // 2 :])
    skipped = f"{'…':>10}    {len(i.trail) - TRAIL_MAX} lines more: --json"
    yield "story", [f"{line.after_s:+8.1f} s  {line.text}" if line is not None else skipped for line in trail]
    yield "evidence (store keys)", cut(i.evidence)


def _seen(found: Finding) -> str:
    seen = found.seen
    times = f"{seen.times} time{'s' if seen.times > 1 else ''}"
    where = f", on {names_in_words(seen.nodes)}" if seen.nodes else ""
    fix = f"; {FIXES.get(seen.last_action, seen.last_action)} did not hold" if seen.last_action else ""
    return f"the same failure was seen {times}{where}{fix}"


def culprits_in_words(i: Incident, found: Finding | None) -> Iterator[str]:
    """Each with what it does; beyond a few, a count."""
    rows = {row.rank: row for row in (found.culprits if found is not None else ())}
    for member in i.culprits[:ONE_BY_ONE]:
        row = rows.get(member.rank)
        does = rank_words.activity(row) if row is not None and row.node in ("", member.node) else ""
        gpu = f", GPU {row.gpu}" if row is not None and row.gpu is not None else ""
        yield f"{who(member)}{gpu}{f': {does}' if does else ''}"
        if row is not None:
            yield from (f"  {line}" for line in (rank_words.facts(row), *rank_words.calls(row)) if line)
    if len(i.culprits) > ONE_BY_ONE:
        rest = i.culprits[ONE_BY_ONE:]
        ranks, nodes = (member.rank for member in rest), (member.node for member in rest)
        yield f"and {len(rest)} more: {ranks_in_words(ranks)} on {names_in_words(nodes)}"


def cascade(i: Incident) -> str:
    """Who stalled or died because of it."""
    many = "1 other" if len(i.cascade) == 1 else f"{len(i.cascade)} others"
    return f"{many} stalled or died because of it: {ranks_in_words(i.cascade)}"


def sureness(confidence: float) -> str:
    """What a confidence is good for."""
    if confidence >= 0.9:
        words = "sure enough to act on"
    elif confidence > 0.6:
        words = "likely: look before you act on it"
    else:
        words = "a set to look in, no finding: look for yourself"
    return f"{confidence:.2f}, {words}"


def _kind(found: Finding | None) -> str:
    return f" ({found.kind})" if found is not None and found.kind else ""


def _state(i: Incident) -> str:
    return f"{i.state}, {i.outcome}" if i.outcome else i.state


def times(i: Incident) -> Iterator[str]:
    """How long it took, and what it cost."""
    if i.time_to_detect_s is not None:
        yield f"detected {i.time_to_detect_s:.1f} s after the first evidence"
    if i.time_to_recover_s is not None:
        yield f"{'recovered' if i.outcome == 'recovered' else 'over'} {i.time_to_recover_s:.1f} s after that"
    elif i.state == "open":
        yield "not over yet"
    if i.resumed_from_step is not None:
        lost = f" ({steps(i.lost_steps)} of work lost)" if i.lost_steps else ""
        words = ", from last words" if last_words.is_of(i, i.resumed_from_step) else ""
        yield f"resumed from step {i.resumed_from_step}{words}{lost}"
    if i.restarts:
        yield f"{i.restarts} restart" + ("s" if i.restarts > 1 else "")
    spent = sorted(((s, name) for name, s in i.lost_s.items() if name != GOING_ON), reverse=True)
    if spent:
        told = ", ".join(f"{name.replace('_', ' ')} {s:.1f} s" for s, name in spent)
        yield f"cost its run {sum(s for s, _ in spent):.1f} s{' so far' if i.state == 'open' else ''}: {told}"


def who(member: Member) -> str:
    return f"rank {member.rank} on {member.node} (local rank {member.local_rank}, pid {member.pid})"
