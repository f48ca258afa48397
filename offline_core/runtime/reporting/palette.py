"""The colours of cards and pages, light and dark, told apart by colour-blind readers too; as CSS properties and for pictures.

Pictures are transparent and lie on either: they are drawn in `PICTURE`, which reads on both.
Contrast: text 4.5 to 1, lines and areas 3 to 1, on the page and on bands; text in pictures 4 to 1. Series follow
Okabe and Ito, "Color Universal Design", 2008, darker on light and lighter on dark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "band": "#f3f5f8",
    "line": "#d0d7de",
    "ink": "#1f2328",
    "quiet": "#57606a",
    "good": "#1a7451",
    "bad": "#c4242c",
    "fair": "#8f5f00",
    "grey": "#4f6378",
    "series-1": "#0072b2",
    "series-2": "#c25100",
    "series-3": "#00805e",
    "series-4": "#a34f86",
    "series-5": "#7f6a00",
    "series-6": "#5b6770",
}
DARK: Mapping[str, str] = {
    "page": "#15191e",
    "band": "#1e242b",
    "line": "#3a444f",
    "ink": "#e6edf3",
    "quiet": "#a3aeb9",
    "good": "#4cc38a",
    "bad": "#ff8078",
    "fair": "#e6b450",
    "grey": "#9db1c5",
    "series-1": "#56b4e9",
    "series-2": "#f2954f",
    "series-3": "#3fcaa2",
    "series-4": "#dc92c3",
    "series-5": "#e3cb52",
    "series-6": "#aab4be",
}
PICTURE: Mapping[str, str] = {**LIGHT, "ink": "#747d88", "quiet": "#747d88", "good": "#208a61"}
"""Colours of pictures, for pages of any colour."""
SERIES = [f"series-{number}" for number in range(1, 7)]


def properties(colors: Mapping[str, str]) -> str:
    """Return colours as CSS custom properties: `--page: #ffffff; …`."""
    return " ".join(f"--{name}: {color};" for name, color in colors.items())


def css(selector: str = ":root") -> str:
    """The properties on what is selected, which follow the reader's browser, or its `data-theme` where a page has a switch."""
    return (
        f"{selector} {{ color-scheme: light dark; {properties(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {selector} {{ {properties(DARK)} }} }}\n"
        f'{selector}[data-theme="light"] {{ color-scheme: light; {properties(LIGHT)} }}\n'
        f'{selector}[data-theme="dark"] {{ color-scheme: dark; {properties(DARK)} }}\n'
    )


def mermaid_styles(kinds: Mapping[Any, str]) -> list[str]:
    """Lines that give each class of a Mermaid chart a fill and an edge that read on light and on dark, by its series.

    A chart does not see the page's properties, so boxes are light with dark text everywhere, and arrows are of a middle grey.
    """
    lines = [
        f"  classDef {kind} fill:{pale(LIGHT[series])},stroke:{LIGHT[series]},color:{LIGHT['ink']}"
        for kind, series in kinds.items()
    ]
    return [*lines, "  linkStyle default stroke:#8796a5"]


def pale(color: str, share: float = 0.16) -> str:
    """The colour on white, by so large a share of it."""
    parts = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)
