"""The page of messages has an entry for every class of errors, and its messages are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from offline_core import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
MESSAGES = re.findall(r"^\| `(.+?)` \| .+ \| .+ \|$", PAGE, re.MULTILINE)
HOLE = "…"


def test_every_class_of_errors_has_an_entry() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    told = {word for heading in headings for word in re.findall(r"\w+Error", heading)}
    assert told == {name for name in vars(errors) if name.endswith("Error")} - {"OfflineError"}


def test_those_that_may_pass_are_marked_so() -> None:
    for section in PAGE.split("\n## ")[1:]:
        classes = [getattr(errors, name) for name in re.findall(r"\w+Error", section.partition("\n")[0])]
        assert ("\n*May pass.*\n" in section) == any(found.may_pass for found in classes), section.partition("\n")[0]


@pytest.mark.parametrize("message", MESSAGES)
def test_the_code_says_so(message: str, said: list[str]) -> None:
    parts = message.split(HOLE)
    assert sum(len(part.strip()) for part in parts) >= 12, "too little to be recognised by"
    assert any(_has(text, parts) for text in said), f"no message in the code is {message!r}"


def _has(text: str, parts: list[str]) -> bool:
    """Whether these parts are in the text, one after the other."""
    position = 0
    for part in parts:
        position = text.find(part, position) + len(part)
        if position < len(part):
            return False
    return True


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Every text in the code, with a hole where a value goes."""
    texts = []
    for folder in ("offline_core", "flows"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    texts.append("".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(node.value)
    return texts
