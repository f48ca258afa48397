"""Draws the pictures of these pages: `python docs/drawings.py` writes docs/images/*.svg.

Each stands on light paper of its own, so that it reads the same on a light page and on a dark one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parent / "images"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
PAPER, INK, FAINT = "#f6f8f9", "#1d2b33", "#5b6872"
KINDS = {
    "data": ("#d4e6f4", "#3b7aa6"),
    "work": ("#d0ebe1", "#2f8d74"),
    "policy": ("#fae6bd", "#b07f10"),
    "off": ("#eceff1", "#9aa5ad"),
}
"""Fill and edge of boxes: what lies somewhere, what is done, what acts, and what is not there (any more)."""
LINE = 18


class Picture:
    """A drawing `width` by `height` pixels; positions are those of corners, y downwards."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, text: str, kind: str = "data", *, bold: bool = True) -> None:
        """A box with lines of text in its middle, the first of them bold."""
        fill, edge = KINDS[kind]
        dashes = ' stroke-dasharray="5 4"' if kind == "off" else ""
        self._parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="{fill}" stroke="{edge}"{dashes}/>')
        lines = text.split("\n") if text else []
        top = y + h / 2 - (len(lines) - 1) * LINE / 2 + 5
        for number, line in enumerate(lines):
            self.text(x + w / 2, top + number * LINE, line, anchor="middle", bold=bold and number == 0, faint=number > 0)

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, faint: bool = False) -> None:
        weight, colour = (' font-weight="600"' if bold else ""), (FAINT if faint else INK)
        size = 12 if faint else 13.5
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}>{escape(text)}</text>'
        )

    def arrow(self, *points: tuple[float, float], label: str = "", dashed: bool = False) -> None:
        """Through points, its head at the last; the label stands above the middle of its first part."""
        path = " ".join(f"{x},{y}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{FAINT}" stroke-width="1.6" marker-end="url(#head)"{dashes}/>'
        )
        if label:
            (x1, y1), (x2, y2) = points[:2]
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 7, label, anchor="middle", faint=True)

    def line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        (x1, y1), (x2, y2) = start, end
        self._parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dde3e7"/>')

    def curve(self, points: Sequence[tuple[float, float]], kind: str, label: str) -> None:
        """A line with dots through points of the picture, its label at the last one."""
        colour = KINDS[kind][1]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.4"/>')
        self._parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}"/>' for x, y in points]
        self.text(points[-1][0] + 10, points[-1][1] + 5, label)

    def svg(self, title: str) -> str:
        head = (
            '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 10 5 0 10z" fill="{FAINT}"/></marker>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
                f'height="{self.height}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
                f"<title>{escape(title)}</title>",
                f"<defs>{head}</defs>",
                f'<rect width="{self.width}" height="{self.height}" rx="10" fill="{PAPER}"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def stages() -> Picture:
    p = Picture(900, 360)
    p.box(20, 30, 120, 54, "environment\ngymnasium", "policy")
    p.box(20, 130, 120, 88, "other people's\nRLlib · tables\nCSV · Minari\nD4RL · LeRobot")
    for x, y, name, what in [
        (180, 30, "train expert", "PPO, SAC, TD3"),
        (330, 30, "record", "Ray actors"),
        (330, 147, "import", "rows → episodes"),
        (480, 88, "check", "rules · outliers"),
        (480, 190, "prune, split", "conditions"),
        (635, 88, "train, sweep", "BC, IQL, CQL …"),
        (635, 190, "fine-tune", "by play"),
        (770, 30, "evaluate", "it plays"),
        (770, 120, "estimate", "from a log"),
        (770, 210, "decide", "which is better?"),
        (770, 290, "promote", "and roll back"),
        (480, 290, "export", "ONNX · Torch"),
    ]:
        p.box(x, y, 116 if x < 770 else 110, 54, f"{name}\n{what}", "work")
    p.box(635, 290, 100, 54, "what runs\nan alias", "policy")
    p.arrow((140, 57), (178, 57))
    p.arrow((296, 57), (328, 57))
    p.arrow((140, 174), (328, 174))
    p.arrow((446, 57), (462, 57), (462, 108), (478, 108))
    p.arrow((446, 174), (462, 174), (462, 122), (478, 122))
    p.arrow((538, 142), (538, 188))
    p.arrow((596, 217), (616, 217), (616, 115), (633, 115))
    p.arrow((693, 142), (693, 188))
    for y in (57, 147, 237):
        p.arrow((751, 115), (760, 115), (760, y), (768, y))
    p.arrow((825, 264), (825, 288))
    p.arrow((770, 317), (737, 317))
    p.arrow((635, 317), (598, 317))
    p.text(20, 322, "Every arrow is a version of a dataset, a checkpoint or a", faint=True)
    p.text(20, 340, "decision that says what it was made from.", faint=True)
    return p


def versions() -> Picture:
    p = Picture(820, 250)
    p.box(20, 40, 130, 54, "writer A", "work")
    p.box(20, 150, 130, 54, "writer B", "work")
    p.box(220, 40, 150, 54, "part-….parquet\nfiles, unseen")
    p.box(220, 150, 150, 54, "part-….parquet\nfiles, unseen")
    p.box(462, 95, 186, 54, "_versions/000002.json\nexclusive create", "policy")
    p.box(690, 20, 110, 54, "version 1\nstays")
    p.box(690, 95, 110, 54, "version 2\nwhole, at once")
    p.arrow((150, 67), (218, 67), label="1 write")
    p.arrow((150, 177), (218, 177), label="1 write")
    p.arrow((370, 67), (430, 67), (430, 112), (460, 112))
    p.arrow((370, 177), (430, 177), (430, 134), (460, 134), dashed=True)
    p.text(445, 60, "2 commit: wins", faint=True)
    p.text(445, 190, "2 commit: takes the next number", faint=True)
    p.arrow((648, 122), (688, 122))
    p.text(20, 234, "A crash before 2 leaves files that no reader opens. No reader ever sees half a version.", faint=True)
    return p


def recorder() -> Picture:
    p = Picture(820, 270)
    p.box(20, 105, 120, 54, "7 episodes\nof one round", "policy")
    shares = [("recorder 0", [(2, 150), (2, 118)], 40), ("recorder 1", [(2, 96), (1, 168)], 150)]
    for name, copies, y in shares:
        p.box(200, y, 120, 74, f"{name}\n{sum(quota for quota, _ in copies)} episodes", "work")
        p.arrow((140, 132), (170, 132), (170, y + 37), (198, y + 37))
        for row, (quota, length) in enumerate(copies):
            top, x = y + 2 + row * 38, 350.0
            for episode in range(quota):
                width = length * (0.75 if episode else 0.6)
                p.box(x, top, width, 30, "", "data")
                x += width + 4
            p.box(x, top, 60, 30, "", "off")
            p.text(x + 68, top + 20, f"copy {row}: quota {quota}", faint=True)
    p.arrow((700, 132), (750, 132))
    p.box(752, 105, 56, 54, "7\non disk")
    p.text(
        20, 256, "Quotas are fixed before the first step; what a copy plays beyond its own (dashed) is not counted.", faint=True
    )
    return p


def episodes() -> Picture:
    p = Picture(820, 260)
    p.text(30, 28, "rows, in any order", bold=True)
    rows = ["o₂ a₂ r₂ → o₃  end", "o₀ a₀ r₀ → o₁", "o₁ a₁ r₁ → o₂"]
    for row, text in enumerate(rows):
        p.box(30, 42 + row * 40, 190, 32, text, "data", bold=False)
    p.box(30, 178, 190, 32, "x y NaN → ?", "off", bold=False)
    p.box(290, 82, 130, 54, "put in order\nt · time · linked", "work")
    p.arrow((220, 98), (288, 98))
    p.arrow((355, 138), (355, 194), (222, 194), dashed=True)
    p.text(362, 214, "quarantined, with the reason", faint=True)
    p.arrow((420, 109), (476, 109))
    for number in range(4):
        p.box(480 + number * 82, 60, 44, 34, f"o{'₀₁₂₃'[number]}", "data", bold=False)
        if number < 3:
            p.box(518 + number * 82, 122, 52, 34, f"a{'₀₁₂'[number]} r{'₀₁₂'[number]}", "policy", bold=False)
            p.arrow((526 + number * 82, 77), (560 + number * 82, 77))
    p.text(480, 46, "an episode: T+1 observations", bold=True)
    p.text(518, 178, "T actions and rewards; terminated", faint=True)
    p.text(30, 244, "rows = steps + duplicates + dropped + quarantined: every one is accounted for.", faint=True)
    return p


def layers() -> Picture:
    p = Picture(860, 260)
    p.box(20, 70, 110, 90, "dataset\nrow groups of\nwhole episodes")
    columns = [
        (190, "read", "Ray Data tasks", "data.row_groups_per_read"),
        (410, "prelearner", "decode, check, lay out", "data.prelearners"),
        (630, "learner", "Torch", "compute.learners"),
    ]
    for x, name, what, knob in columns:
        p.box(x + 14, 40, 160, 74, "", "work")
        p.box(x + 7, 50, 160, 74, "", "work")
        p.box(x, 60, 160, 74, f"{name}\n{what}", "work")
        p.text(x + 80, 158, knob, anchor="middle", faint=True)
    p.arrow((130, 97), (188, 97))
    p.arrow((364, 97), (408, 97))
    p.arrow((584, 97), (628, 97))
    p.arrow((804, 97), (840, 97), (840, 200), (75, 200), (75, 164), dashed=True)
    p.text(430, 193, "next epoch: every step once, in an order of (seed, epoch)", anchor="middle", faint=True)
    p.text(20, 244, "Small data: one process does all three, which takes less time than an actor takes to start.", faint=True)
    return p


def policy() -> Picture:
    p = Picture(900, 260)
    p.box(130, 40, 640, 84, "", "policy")
    parts = ["filter\nmean, std", "frames\nthe last few", "network", "distribution", "action scale\nand bounds"]
    for number, text in enumerate(parts):
        p.box(145 + number * 124, 55, 108, 54, text, "work")
        if number:
            p.arrow((129 + number * 124, 82), (144 + number * 124, 82))
    p.text(20, 70, "observations", bold=True)
    p.text(20, 102, "raw", faint=True)
    p.arrow((20, 82), (143, 82))
    p.text(790, 70, "actions", bold=True)
    p.text(790, 102, "env's units", faint=True)
    p.arrow((749, 82), (870, 82))
    p.box(345, 146, 210, 36, "policy.json + safetensors")
    p.arrow((450, 124), (450, 145))
    for number, text in enumerate(["expert", "recorder", "learner", "evaluation", "export"]):
        p.box(155 + number * 121, 216, 106, 28, text, "work", bold=False)
        p.arrow((450, 182), (450, 199), (208 + number * 121, 199), (208 + number * 121, 215))
    return p


def reuse() -> Picture:
    p = Picture(860, 250)
    for y, text, kind in [
        (24, "operation\nname, version, parameters", "work"),
        (94, "what it reads\nfingerprints of content", "data"),
        (164, "code of yours\nhash of its file", "policy"),
    ]:
        p.box(20, y, 190, 54, text, kind)
        p.arrow((210, y + 27), (250, y + 27), (250, 121), (288, 121))
    p.box(290, 94, 120, 54, "identity", "policy")
    p.box(480, 20, 170, 54, "in the output, whole\nfound in milliseconds", "data")
    p.box(480, 94, 170, 54, "begun: last state\ngoes on from there", "work")
    p.box(480, 168, 170, 54, "nothing there\ndone from the start", "work")
    for y in (47, 121, 195):
        p.arrow((410, 121), (445, 121), (445, y), (478, y))
        p.arrow((650, y), (685, y), (685, 121), (728, 121))
    p.box(730, 94, 110, 54, "the same\nto the bit", "data")
    return p


def rates() -> Picture:
    """Steps a second against the size of the dataset, both on logarithmic axes."""
    p = Picture(860, 330)
    left, right, top, bottom = 80, 560, 40, 270
    low, high = 1e5, 2e6

    def place(steps: float, rate: float) -> tuple[float, float]:
        x = left + (math.log10(steps) - 5) / 2 * (right - left)
        return x, bottom - math.log10(rate / low) / math.log10(high / low) * (bottom - top)

    for rate in (1e5, 2e5, 5e5, 1e6, 2e6):
        y = place(1e5, rate)[1]
        p.line((left, y), (right, y))
        p.text(left - 8, y + 4, f"{rate / 1e6:g} M", anchor="end", faint=True)
    for steps in (1e5, 1e6, 1e7):
        p.text(place(steps, low)[0], bottom + 20, f"{steps / 1e6:g} M steps", anchor="middle", faint=True)
    p.text(left - 50, 24, "steps a second, one machine of two cores", faint=True)
    data, learning = _results("2026-11-21-data"), _results("2026-11-21-learning")
    for kind, label, lines, name, which in [
        ("data", "table → episodes", data, "convert.table_to_episodes.steps_per_second", {}),
        ("work", "import, in order", data, "convert.steps_per_second", {"rows": "in order"}),
        ("off", "import, scrambled", data, "convert.steps_per_second", {"rows": "scrambled"}),
        ("policy", "learn, BC [256, 256], one thread", learning, "scaling.steps_per_second", {}),
    ]:
        found = [line for line in lines if line["name"] == name and which.items() <= line.items()]
        p.curve([place(line["steps"], line["value"]) for line in found], kind, label)
    p.text(30, 316, "benchmarks/results/2026-11-21-data.jsonl and 2026-11-21-learning.jsonl", faint=True)
    return p


def _results(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


PICTURES: dict[str, tuple[Callable[[], Picture], str]] = {
    "stages": (stages, "The stages, from an environment or other people's data to the policy that runs"),
    "versions": (versions, "Files first, then one exclusive create of a manifest"),
    "recorder": (recorder, "Episodes are shared out before they are played"),
    "episodes": (episodes, "Rows in any order become an episode"),
    "layers": (layers, "Read, prelearner and learner"),
    "policy": (policy, "A policy as one thing"),
    "rates": (rates, "Steps a second against the size of the dataset"),
    "reuse": (reuse, "What was done is found, what was killed goes on"),
}


def drawings(names: Sequence[str] = tuple(PICTURES)) -> dict[str, str]:
    """By name of the file."""
    return {f"{name}.svg": PICTURES[name][0]().svg(PICTURES[name][1]) for name in names}


if __name__ == "__main__":
    for name, text in drawings().items():
        (IMAGES / name).write_text(text)
