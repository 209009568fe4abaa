"""The command blocks of a page: those that can run on any machine, and those that cannot, with what they need."""

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"(?:^<!-- not run: (?P<why>[^\n]*?) -->\n)?^```bash\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    line: int  # of its first command, in the page
    text: str
    needs: str  # "": it runs here


def blocks(page: Path) -> list[Block]:
    said = page.read_text(encoding="utf-8")
    return [
        Block(said.count("\n", 0, found.start("text")) + 1, found["text"], found["why"] or "")
        for found in BLOCK.finditer(said)
    ]


def script(page: Path) -> str:
    """All blocks that run, in order, for one shell that ends at the first command that fails."""
    parts = ["set -eo pipefail"]
    for block in blocks(page):
        if not block.needs:
            parts += [f"echo '# {page.name}, line {block.line}'", block.text]
    return "\n".join(parts)
