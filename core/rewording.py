"""What an incident of several silent nodes says once some of them are told of elsewhere, or are back. Pure."""

import re
from collections.abc import Collection
from typing import Final

import msgspec

from rankpulse.core.records import Incident
from rankpulse.core.telling import CUT_OFF, DEAD, NAMED_IN_WORDS, NOBODY_SUFFERS, STUCK, UNTOLD, Form, beyond, phrase

_FORMS: Final = (CUT_OFF, STUCK, NOBODY_SUFFERS, UNTOLD, DEAD)


def form_of(incident: Incident, ceiling_s: float) -> Form | None:
    """The form that an incident's summary has, None where it has none of them."""
    forms = (form for form in (*_FORMS, beyond(ceiling_s)) if form.klass == incident.klass)
    return next((form for form in forms if _is_of(incident.summary, form)), None)


def without(incident: Incident, gone: Collection[str], ceiling_s: float) -> Incident:
    """The incident of those that are left, in every word that names them. Its trail keeps what it said before."""
    rest = tuple(name for name in incident.nodes if name not in gone)
    form = form_of(incident, ceiling_s)
    summary = f"{incident.summary} (without {', '.join(sorted(gone)[:NAMED_IN_WORDS])})"
    if form is not None:
        summary = phrase(form, rest, unnamed=_unnamed(incident))
    return msgspec.structs.replace(
        incident,
        nodes=rest,
        culprits=tuple(member for member in incident.culprits if member.node not in gone),
        summary=summary,
        reasons=_reasons(incident, gone),
    )


def _reasons(incident: Incident, gone: Collection[str]) -> tuple[str, ...]:
    """Those that speak of nobody who is gone; never none at all."""
    left = tuple(reason for reason in incident.reasons if not _words(reason) & set(gone))
    return left or ("silent since about the same time as others that are told of elsewhere, or are back",)


def _is_of(summary: str, form: Form) -> bool:
    ends = (text.split("{}") for text in (form.one, form.many))
    return any(summary.startswith(head) and summary.endswith(tail) for head, tail in ends)


def _unnamed(incident: Incident) -> int:
    """How many more the summary counts than the incident names."""
    more = re.search(r" and (\d+) more\b", incident.summary)
    return max(int(more[1]) + NAMED_IN_WORDS - len(incident.nodes), 0) if more else 0


def _words(text: str) -> set[str]:
    return set(re.split(r"[\s,:;()]+", text))
