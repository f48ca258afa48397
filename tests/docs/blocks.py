"""Fenced blocks of Markdown, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "deployments/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    not_run: str | None
    """Why, as the comment just above it says."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, those in lists and quotes too."""
    found = []
    reason: str | None = None
    for token in MarkdownIt("commonmark").parse((ROOT / page).read_text()):
        if token.type == "fence":
            assert token.map is not None
            line, language = token.map[0] + 1, token.info.strip()
            found.append(Block(page=page, line=line, language=language, text=token.content, not_run=reason))
        match = NOT_RUN.fullmatch(token.content.strip()) if token.type == "html_block" else None
        reason = match[1] if match else None
    return found


def inline_commands(page: str) -> Iterator[tuple[str, str]]:
    """(place, text) of each `offline …` inside of a sentence or a table."""
    for token in MarkdownIt("commonmark").enable("table").parse((ROOT / page).read_text()):
        for child in token.children or ():
            if child.type == "code_inline" and re.match(r"offline [a-z-]+( |$)", child.content):
                yield f"{page}:{token.map[0] + 1 if token.map else 0}", child.content


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each `$ …` line. A quote that is open at the end of a line goes on in the next one; the rest is output."""
    lines = iter(block.text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            continue
        text = line.removeprefix("$ ")
        while (words := _words(text)) is None:
            text += "\n" + next(lines)
        yield words


def _words(text: str) -> list[str] | None:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        return None
