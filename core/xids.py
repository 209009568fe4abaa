"""What NVIDIA's XID numbers mean for a job: whether one explains that it broke, and whom it speaks against.

A view of the catalogue. A number that is not known is told, and never acted upon by itself.
"""

from typing import Final

from rankpulse.core import xid_catalogue as c

HARDWARE: Final = "hardware"  # the GPU: leave it out, reset or replace it
NVLINK: Final = "nvlink"  # a link of its NVLink domain
PROGRAM: Final = "program"  # usually the program; of the GPU only when it comes again there
ECHO: Final = "echo"  # what follows something else: never a cause
NOTE: Final = "note"  # harmless by itself
UNLISTED: Final = "unlisted"

_BY_ROLE: Final = {c.UNKNOWN: UNLISTED, c.INFORMATIONAL: NOTE}
_HEAVY: Final = (c.RESET_GPU, c.DRAIN_REBOOT, c.CONTACT_VENDOR)
_CONTAINED: Final = 94  # one program dies of it, but the memory is the GPU's


def meaning(code: int) -> str:
    found = c.of(code)
    if found.role in _BY_ROLE:
        return _BY_ROLE[found.role]
    if found.scope in (c.LINK, c.FABRIC):
        return NVLINK
    if code == _CONTAINED or (found.scope != c.PROCESS and found.action in _HEAVY):
        return HARDWARE  # also what qualifies another: seen alone, the other was lost
    return ECHO if found.role == c.CONSEQUENCE else PROGRAM


def words(code: int) -> str:
    found = c.of(code)
    return f"Xid {code}: {found.meaning}" if found.role != c.UNKNOWN else f"Xid {code}"


def needs_reboot(code: int) -> bool:
    return c.of(code).action == c.DRAIN_REBOOT
