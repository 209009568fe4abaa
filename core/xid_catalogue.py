"""What a code of the driver means and what to do about it: the catalogue, read once out of the tables."""

from functools import cache
from typing import Final, NamedTuple

from rankpulse.core.sxid_table import SXIDS
from rankpulse.core.xid_table import XIDS

# role
CAUSE: Final = "cause"
CONSEQUENCE: Final = "consequence"  # an echo of something else
INFORMATIONAL: Final = "informational"
UNKNOWN: Final = "unknown"
# scope
PROCESS, GPU, LINK, FABRIC, NODE = "process", "gpu", "link", "fabric", "node"
# action, the lighter first
IGNORE: Final = "ignore"
RESTART_APP: Final = "restart_app"
RESET_GPU: Final = "reset_gpu"  # at the next job boundary
DRAIN_REBOOT: Final = "drain_reboot"
CONTACT_VENDOR: Final = "contact_vendor"
ACTIONS: Final = (IGNORE, RESTART_APP, RESET_GPU, DRAIN_REBOOT, CONTACT_VENDOR)
# action of a few codes: the line itself tells
DECODE: Final = "decode"  # by what it prints: Fatal or Nonfatal
STATED: Final = "stated"  # by the number of the recovery action

ACTION_WORDS: Final = {
    IGNORE: "nothing to do",
    RESTART_APP: "restart the program",
    RESET_GPU: "reset the GPU at the next job boundary",
    DRAIN_REBOOT: "drain the node and reboot it",
    CONTACT_VENDOR: "run the vendor's diagnostics, contact the vendor",
    DECODE: "by what the line says: Fatal: reset the GPU; Nonfatal: watch",
    STATED: "what it asks for",
}
# of the recovery action: XID 154, field 230 of NVML
_RECOVERY: Final = {
    0: (IGNORE, "nothing"),
    1: (RESET_GPU, "a reset of the GPU"),
    2: (DRAIN_REBOOT, "a reboot of the node"),
    3: (RESET_GPU, "traffic between GPUs to be drained"),
    4: (RESET_GPU, "the GPU to be drained and reset"),
    5: (RESTART_APP, "its IMEX domain to be recovered"),
    6: (DRAIN_REBOOT, "a reset of its bus"),
    7: (DRAIN_REBOOT, "a reboot of the system"),
}
_ECHO_OF: Final[dict[int, tuple[int, ...]]] = {43: (), 45: (), 154: (), 171: (48,), 172: (48,), 160: (), 161: ()}
RESERVED: Final = "a code that the catalogue does not know"


class Code(NamedTuple):
    """One XID code."""

    code: int
    mnemonic: str = ""
    meaning: str = RESERVED
    role: str = UNKNOWN
    scope: str = GPU
    program: str = UNKNOWN  # is the program at fault: no, unlikely, possible, likely
    action: str = CONTACT_VENDOR
    generation: str = "none known"
    source: str = "none"
    followup: str = "Unknown code: report, do not act upon it"
    note: str = ""

    @property
    def echo_of(self) -> tuple[int, ...] | None:
        """The codes that it follows, () when any; None: it may be the first."""
        return _ECHO_OF.get(self.code)


class Switch(NamedTuple):
    """One SXid code."""

    code: int
    meaning: str = RESERVED
    role: str = UNKNOWN
    scope: str = FABRIC
    fatal: str = UNKNOWN  # yes, no
    action: str = CONTACT_VENDOR
    followup: str = "Unknown code: report, do not act upon it"
    note: str = ""


def of(code: int) -> Code:
    return xids().get(code) or Code(code)


def of_switch(code: int) -> Switch:
    return sxids().get(code) or Switch(code)


def of_recovery(number: int | None) -> str:
    """The action that the driver asks for. A number that nobody knows asks for something: a person has to look."""
    return _RECOVERY.get(number, (CONTACT_VENDOR, ""))[0] if number is not None else RESET_GPU


def recovery_words(number: int) -> str:
    return _RECOVERY.get(number, ("", f"recovery action {number}"))[1]


def heavier(*actions: str) -> str:
    """The catalogue and the driver may ask for different things: the heavier wins."""
    return max(actions, key=weight, default=IGNORE)


def weight(action: str) -> int:
    return ACTIONS.index(action) if action in ACTIONS else ACTIONS.index(RESET_GPU)


@cache
def xids() -> dict[int, Code]:
    rows = (line.split("|") for line in XIDS.splitlines())
    return {int(row[0]): Code(int(row[0]), *row[1:]) for row in rows}


@cache
def sxids() -> dict[int, Switch]:
    rows = (line.split("|") for line in SXIDS.splitlines())
    return {int(row[0]): Switch(int(row[0]), *row[1:]) for row in rows}


@cache
def may_go_on(digits: str) -> bool:
    """Whether a longer code begins with these digits: at the end of a cut line they prove nothing."""
    return any(str(code).startswith(digits) and str(code) != digits for code in xids())
