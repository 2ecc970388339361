"""What the documentation tells readers to paste and to type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PORT = 8000


@dataclass(frozen=True)
class Block:
    """A code block and the heading it stands under."""

    heading: str
    language: str
    text: str

    def at(self, port: int) -> str:
        """The text for a service at another port."""
        return re.sub(rf"(localhost|127\.0\.0\.1):{PORT}\b", rf"127.0.0.1:{port}", self.text)


def blocks(name: str) -> list[Block]:
    """Return the code blocks of a page."""
    found, heading = [], ""
    page = (DOCS / name).read_text(encoding="utf-8")
    for match in re.finditer(r"^#+ ([^\n]*)$|^```(\w+)\n(.*?)^```$", page, re.M | re.S):
        if match[1]:
            heading = match[1]
        else:
            found.append(Block(heading, match[2], match[3]))
    return found


def block(name: str, heading: str, language: str, number: int = 0) -> Block:
    """Return the block of a heading in a language."""
    return [one for one in blocks(name) if (one.heading, one.language) == (heading, language)][number]


def commands(name: str) -> list[str]:
    """Return the commands of a page's shell blocks, those that go over several lines as one."""
    found: list[str] = []
    for one in blocks(name):
        if one.language == "sh":
            found += re.findall(r"^curl .*?(?=^curl |\Z)", one.text, re.M | re.S)
    return found
