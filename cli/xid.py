"""`rankpulse xid`: a code of the driver in plain words."""

from typing import Any, Final

from rankpulse.cli import show
from rankpulse.core import xid_catalogue as c
from rankpulse.core import xids

ROLES: Final = {
    c.CAUSE: "it explains what comes after it",
    c.CONSEQUENCE: "it follows from something else: look for that",
    c.INFORMATIONAL: "harmless by itself",
    c.UNKNOWN: "not known: told, and never acted upon by itself",
}
PROGRAM: Final = {
    "no": "no",
    "unlikely": "hardly",
    "possible": "possibly",
    "likely": "probably, unless it comes again with other programs",
    c.UNKNOWN: "not known",
}


def run(code: int, switch: bool, as_json: bool) -> None:
    """XID, or SXid where `switch`, or where the number can be nothing else."""
    found = _switch(code) if switch or (code in c.sxids() and code not in c.xids()) else _xid(code)
    show.as_json(found) if as_json else _page(found)


def _xid(code: int) -> dict[str, Any]:
    found = c.of(code)
    return {"type": "XID", **found._asdict(), "meaning_for_a_job": xids.meaning(code), "known": code in c.xids()}


def _switch(code: int) -> dict[str, Any]:
    return {"type": "SXid", **c.of_switch(code)._asdict(), "known": code in c.sxids()}


def _page(found: dict[str, Any]) -> None:
    out = show.console()
    name = f" ({found['mnemonic']})" if found.get("mnemonic") else ""
    out.print(f"{found['type']} {found['code']}: {found['meaning']}\n", style="bold", soft_wrap=True)
    rows = [
        ("do", c.ACTION_WORDS[found["action"]]),
        ("then", found["followup"]),
        ("role", f"{found['role']}: {ROLES[found['role']]}"),
        ("concerns", found["scope"]),
        ("the program's fault", PROGRAM[found["program"]] if "program" in found else ""),
        ("fatal", found.get("fatal", "")),
        ("note", found["note"]),
        ("GPUs", found.get("generation", "NVSwitch of V100 to H100 machines")),
        ("source", f"{found.get('source', 'NVSwitch guide')}{name}"),
    ]
    show.facts(out, [(title, value) for title, value in rows if value])
