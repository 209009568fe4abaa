"""Which errors of a program mean that another rank is gone, by their kinds and words. Pure."""

import re
from typing import Final

# torch's own, by name: no torch is needed to judge
_KINDS: Final = frozenset({"DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "RanksLost"})
# gloo's words come in plain RuntimeErrors
_WORDS: Final = re.compile(
    r"connection (?:closed|reset) by (?:peer|remote)|broken pipe|\bgloo\b|\bnccl\b|socket timeout"
    r"|timed out waiting|application timeout caused pair closure|process group (?:was|has been) aborted",
    re.IGNORECASE,
)
_TEXT_MAX: Final = 4000  # characters that are looked at
_CAUSES_MAX: Final = 8


def lost_peer(error: BaseException | None) -> bool:
    """Whether an uncaught error, or what it was raised from, is one of communication. Raises nothing."""
    for _ in range(_CAUSES_MAX):
        if error is None:
            return False
        if any(kind.__name__ in _KINDS for kind in type(error).__mro__):
            return True
        if isinstance(error, RuntimeError | ConnectionError) and _WORDS.search(_text(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_TEXT_MAX]
    except Exception:  # its __str__ is the program's
        return ""
