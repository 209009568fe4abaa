"""What may be asked over HTTP, parsed once and with limits. Who asks is the token's word, never the body's."""

from typing import Annotated, Final

import msgspec

BODY_MAX: Final = 4096  # bytes
OF_RUNS: Final = ("pause", "resume", "restart")
OF_NODES: Final = ("cordon", "uncordon")
OF_EITHER: Final = ("arm", "disarm")  # of a run where one is named, else of the cluster
ACTS: Final = (*OF_RUNS, *OF_NODES, *OF_EITHER)

_Name = Annotated[str, msgspec.Meta(max_length=128)]


class Unclear(ValueError):
    """This is no request of ours; the text says what would be."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /act`: the same as the command of that name."""

    do: str
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    run: _Name = ""  # run_uid, the beginning of it, or its label
    node: _Name = ""
    drain: bool = False  # of cordon


def parse(body: bytes) -> Ask:
    """Raises `Unclear`."""
    try:
        ask = msgspec.json.decode(body, type=Ask)
    except (ValueError, RecursionError) as error:
        raise Unclear(f'{str(error)[:200]}. Write {{"do": "cordon", "node": "gpu07", "reason": "…"}}') from None
    if ask.do not in ACTS:
        raise Unclear(f"do: one of {', '.join(ACTS)}")
    for name, given, needed, allowed in (
        ("run", ask.run, ask.do in OF_RUNS, (*OF_RUNS, *OF_EITHER)),
        ("node", ask.node, ask.do in OF_NODES, OF_NODES),
    ):
        if needed and not given.strip():
            raise Unclear(f"{ask.do}: name a {name}")
        if given and ask.do not in allowed:
            raise Unclear(f"{ask.do} is not about a {name}")
    if ask.drain and ask.do != "cordon":
        raise Unclear("drain goes with cordon")
    return ask
