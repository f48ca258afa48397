"""Characters that act on a terminal instead of being shown: escape sequences, marks that turn text around, and invisible ones.

Names of files, columns, categories and episodes come from other people's data, and so do messages that repeat them. What is
printed shows such a character as Python writes it in a string, `\\x1b` or `\\u202e`. HTML and JSON need nothing: there these
characters do nothing, or are escaped by what writes them.
"""

from __future__ import annotations

import re

_INVISIBLE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for the tab and the line break
    "\xad\u180e\u200b\u2060-\u2065\ufeff"  # of no width; the joiners of words and emoji (U+200C, U+200D) are left
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # marks of direction
    "\u2028\u2029"  # line and paragraph separators
    "\ufff9-\ufffb\U000e0000-\U000e007f"  # annotations and tags
    "\ud800-\udfff"  # what stands for bytes of a file name that are no text: it cannot even be printed
)
_IN_TEXT = re.compile(f"[{_INVISIBLE}]")
_IN_A_LINE = re.compile(f"[{_INVISIBLE}\t\n]")


def visible(text: str) -> str:
    """A text as a terminal can show it: its lines and tabs stay, other control characters are written out.

    What is written out already stays as it is, so that it does not matter how often a text comes by here.
    """
    return _IN_TEXT.sub(_written_out, text)


def visible_line(text: str) -> str:
    """The same for one line, which also has no line break: no name begins a line that looks like one of ours."""
    return _IN_A_LINE.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
