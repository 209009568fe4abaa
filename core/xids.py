"""What NVIDIA's Xid numbers mean for a job: whether one explains that it broke, and whom it speaks against.

After NVIDIA's catalogue for Ampere and newer. A number that is not known is told, and never acted upon by itself.
"""

from typing import Final

HARDWARE: Final = "hardware"  # the GPU: leave it out, reset or replace it
NVLINK: Final = "nvlink"  # a link of its NVLink domain
PROGRAM: Final = "program"  # usually the program; of the GPU only when it comes again there
ECHO: Final = "echo"  # what follows something else: never a cause
NOTE: Final = "note"  # harmless by itself
UNLISTED: Final = "unlisted"

_BY_MEANING: Final = {
    HARDWARE: "46 48 54 57 58 61 62 64 79 94 95 109 110 119 120 140 143 151 156 158 159 167 168 169 171 172 173 175",
    NVLINK: "74 136 144 145 146 147 148 149 150 155 166",
    PROGRAM: "8 11 13 25 31 32 38 39 40 41 42 44 66 67 68 69 70 71 72 75 76 77 80 82 83 84 85 86 88 89 96 97 98 99 "
    "100 101 102 103 104 126 127 128 129 130 131 132 133 134 135 137 139 141 174",
    ECHO: "43 45 154 160 161",
    NOTE: "14 16 56 63 92 93 106 107 108 121 122 123 124 125 142 152 153 157 162 163 164 165 176",
}
_MEANING: Final = {code: meaning for meaning, codes in _BY_MEANING.items() for code in map(int, codes.split())}
_NAMES: Final = {
    13: "the shader engine hit an exception", 31: "a memory page fault", 43: "a channel was reset after a fault",
    45: "channels are cleaned up", 48: "memory error that ECC could not correct", 62: "its power controller halted",
    63: "a memory row is to be remapped", 64: "remapping a memory row failed", 74: "NVLink error",
    79: "it has fallen off the bus", 92: "very many corrected memory errors", 94: "contained memory error",
    95: "uncontained memory error", 109: "context switch timed out", 119: "its firmware (GSP) answers no more",
    120: "its firmware (GSP) crashed", 136: "NVLink training failed", 140: "memory error that ECC could not correct",
    143: "it failed to initialise", 145: "NVLink error", 149: "NVLink is down",
    154: "another recovery action is needed",
}  # fmt: skip
_REBOOT: Final = frozenset({79, 151, 173, 175})  # a reset of the GPU is not enough


def meaning(code: int) -> str:
    return _MEANING.get(code, UNLISTED)


def words(code: int) -> str:
    return f"Xid {code}: {_NAMES[code]}" if code in _NAMES else f"Xid {code}"


def needs_reboot(code: int) -> bool:
    return code in _REBOOT
