"""What is said of silent nodes. Short of their death it is gathered over a tick, then said once of all that fell silent
together: a switch that is lost to thirty agents is one cause, and pages once.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core.cuts import RACK_BEATS, by_time
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.records import Incident, Member
from rankpulse.core.views import NodeView, RunView

REASONED: Final = 4  # nodes whose reasons are given
NAMED_IN_WORDS: Final = 4  # of more, it is said how many more there are


class Form(NamedTuple):
    """One thing that can be said of silent nodes, of one and of several."""

    klass: str
    one: str
    many: str
    confidence: float


CUT_OFF: Final = Form(
    d.AGENT_CUT_OFF,
    "the agent on {} answers, but its beats do not come through the store",
    "the agents on {} answer, but their beats do not come through the store",
    0.95,
)
STUCK: Final = Form(
    d.SIDECAR_DEAD,
    "the agent on {} is gone or stuck, its machine lives",
    "the agents on {} are gone or stuck, their machines live",
    0.9,
)
NOBODY_SUFFERS: Final = Form(
    d.SIDECAR_DEAD,
    "the agent on {} is silent, no job suffers",
    "the agents on {} are silent, no job suffers",
    0.8,
)
UNTOLD: Final = Form(
    d.UNKNOWN,
    "{} is silent; whether it lives cannot be told from here",
    "{} are silent; whether they live cannot be told from here",
    0.3,
)
DEAD: Final = Form(d.NODE_DEAD, "{} is dead: silent on every path", "{} are dead: silent on every path", 0.9)


def beyond(ceiling_s: float) -> Form:
    """Silent for so long that somebody must look."""
    text = f"nothing has been heard of {{}} on any path for {ceiling_s:g} s"
    return Form(d.UNKNOWN, text, text, 0.3)


class Word(NamedTuple):
    """Of one node, and why."""

    node: NodeView
    reasons: tuple[str, ...]


class Telling:
    """The words of one tick."""

    def __init__(self, beat_s: float) -> None:
        self._beat_s = beat_s
        self._words: dict[Form, dict[str, Word]] = {}

    def add(self, form: Form, node: NodeView, *reasons: str) -> None:
        self._words.setdefault(form, {})[node.name] = Word(node, reasons)

    def groups(self) -> Iterable[tuple[Form, list[Word]]]:
        """Those of whom the same is to be said and whose beats ended at about the same time, each group by name."""
        for form, words in self._words.items():
            for group in by_time([word.node for word in words.values()], RACK_BEATS * self._beat_s):
                yield form, [words[name] for name in sorted(node.name for node in group)]


def said(form: Form, words: Sequence[Word]) -> Diagnosis:
    """The same of one node or of several, in order of name."""
    names = tuple(word.node.name for word in words)
    reasons = tuple(dict.fromkeys(reason for word in words[:REASONED] for reason in word.reasons))
    since = min(missed(word.node) for word in words)
    return Diagnosis(form.klass, (), (), names[:NAMED_MAX], form.confidence, phrase(form, names), reasons, (), since)


def phrase(form: Form, names: Sequence[str], *, unnamed: int = 0) -> str:
    """What is said of these. `unnamed`: so many more are meant than are named."""
    return (form.one if len(names) + unnamed == 1 else form.many).format(in_words(names, unnamed))


def joined(incident: Incident, found: Diagnosis) -> Diagnosis:
    """What is found of some nodes, with those that the incident tells of already: more of one cause."""
    if set(incident.nodes) <= set(found.nodes):
        return found
    nodes = tuple(sorted({*incident.nodes, *found.nodes}))[:NAMED_MAX]
    culprits = tuple(dict.fromkeys((*incident.culprits, *found.culprits)))[:NAMED_MAX]
    guilty = {member.rank for member in culprits}
    summary = incident.summary
    if not set(found.nodes) <= set(incident.nodes):
        summary = f"{found.summary}; before it {', '.join(sorted(set(incident.nodes) - set(found.nodes))[:5])}"
    return found._replace(
        nodes=nodes,
        culprits=culprits,
        cascade=tuple(rank for rank in found.cascade if rank not in guilty),
        confidence=max(incident.confidence, found.confidence),
        summary=summary,
        reasons=tuple(dict.fromkeys((*incident.reasons, *found.reasons))),
    )


def dead(run: RunView, nodes: list[NodeView], culprits: list[Member], reason: str, confidence: float) -> Diagnosis:
    """Nodes of one run that are dead: one diagnosis for all that fell silent together."""
    names = tuple(node.name for node in nodes)
    cascade = tuple(sorted(rank for rank, m in run.current.members.items() if m.node not in names))
    who = names[0] if len(names) == 1 else f"{len(names)} nodes at once ({in_words(names)})"
    return Diagnosis(
        d.NODE_DEAD,
        tuple(sorted(culprits, key=lambda member: member.rank))[:NAMED_MAX],
        cascade,
        names[:NAMED_MAX],
        confidence,
        (DEAD.one if len(names) == 1 else DEAD.many).format(who),
        (reason,),
        (),
        max(node.silence_began() for node in nodes),
    )


def silent(node: NodeView, summary: str, reasons: tuple[str, ...], confidence: float) -> Diagnosis:
    """It cannot be told what has become of one silent node."""
    return Diagnosis(d.UNKNOWN, (), (), (node.name,), confidence, summary, reasons, (), missed(node))


def unheard(nodes: list[NodeView], ceiling_s: float) -> Diagnosis:
    """Nodes that have been silent for so long that somebody must look, whatever excused them."""
    names = tuple(sorted(node.name for node in nodes))
    reasons = tuple(dict.fromkeys(f"{node.name}: {node.suspect.reason or 'silent'}" for node in nodes[:4]))
    form, since = beyond(ceiling_s), min(missed(node) for node in nodes)
    return Diagnosis(form.klass, (), (), names[:NAMED_MAX], form.confidence, phrase(form, names), reasons, (), since)


def in_words(names: Iterable[str], unnamed: int = 0) -> str:
    """A few names, and how many more there are."""
    named: Sequence[str] = list(names)
    more = max(len(named) - NAMED_IN_WORDS, 0) + unnamed
    return ", ".join(named[:NAMED_IN_WORDS]) + (f" and {more} more" if more else "")


def missed(node: NodeView) -> float:
    """When its deadline was over."""
    return node.silent_since if node.silent_since is not None else node.heard_at()
