"""What was measured, as JSON lines, as a table, as a page and as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.figure import figure
from benchmarks.vs_rllib.picture import draw
from benchmarks.vs_rllib.runs import LEARNING, SideRun
from benchmarks.vs_rllib.summary import SideSummary, StageSummary, of_stage, summary
from benchmarks.vs_rllib.task import ASKED_EPISODES

COMMAND = "python -m benchmarks.vs_rllib"
COUNT_UNITS = {
    "rows": "rows",
    "duplicate_rows": "rows",
    "files": "files",
    "bytes": "bytes",
    "return": "return",
    "updates": "updates",
}
SECONDS_ARE = (
    "Seconds are of whole processes, from start to end, and so with Python's imports and the start and end of Ray, on both "
    "sides; in brackets without imports and Ray's start. Medians of {rounds}, the sides in turns."
)


def name_of(stage: str, target_return: float) -> str:
    """What a stage is called in tables."""
    return {
        "expert": f"expert (PPO), to a mean return of {target_return:g}",
        "record_episodes": f"record {ASKED_EPISODES} episodes, a row an episode",
        "record_table": f"record {ASKED_EPISODES} episodes, a row a step",
        "convert": "RLlib's table → episodes",
        "bc": f"BC from RLlib's recording, to {target_return:g}",
        "marwil": f"MARWIL from RLlib's recording, to {target_return:g}",
    }[stage]


IN_README = ("a row a step: distinct", "table → episodes", "BC: distinct")
"""How the counts that the README shows begin."""


def table(report: Mapping[str, Any], only: tuple[str, ...] = ("",)) -> str:
    """Markdown: seconds and ratios, and the counts whose names begin with one of `only`."""
    rllib = f"RLlib {report['versions']['ray']}"
    lines = [f"| | here | {rllib} | times as long |", "|---|---|---|---|"]
    for stage in summary(report):
        label = name_of(stage.stage, report["settings"]["target_return"])
        lines.append(f"| {label} | {seconds(stage.our)} | {seconds(stage.rllib)} | {times(stage)} |")
    lines += ["", f"| counted | here | {rllib} |", "|---|---|---|"]
    lines += [f"| {label} | {ours} | {theirs} |" for label, ours, theirs in counted(report) if label.startswith(only)]
    about = report["machine"]
    where = f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, {report['date']}"
    return "\n".join([*lines, "", f"{SECONDS_ARE.format(rounds=rounds_of(report))} {where}."])


def rounds_of(report: Mapping[str, Any]) -> str:
    return span(len(side.runs) for stage in summary(report) for side in (stage.our, stage.rllib))


def seconds(side: SideSummary) -> str:
    """How long one side took, and whether it came to its end."""
    took = ""
    if side.seconds is not None and side.ended:
        took = f"over {short(side.seconds)} s, ended"
        took += f" ({side.ended} of {len(side.runs)})" if side.ended < len(side.runs) else ""
    elif side.seconds is not None:
        took = f"{short(side.seconds)} s ({short(side.stage_seconds or 0.0)})"
    failed, not_run = (
        f"{n} of {len(side.runs)} {what}" if n else "" for n, what in ((side.failed, "failed"), (side.not_run, "not run"))
    )
    return "; ".join(part for part in (took, failed, not_run) if part) or "not run"


def times(stage: StageSummary) -> str:
    """The ratio, two digits of it."""
    return "–" if stage.ratio is None else f"{stage.bound} {digits(stage.ratio)}".strip()


def counted(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, ours, theirs) of all that was counted."""
    runs = [SideRun(**run) for run in report["runs"]]
    lines: list[tuple[str, str, tuple[str, ...]]] = []
    for stage, form in (("record_episodes", "a row an episode"), ("record_table", "a row a step")):
        label = f"{form}: episodes whole of {ASKED_EPISODES}, lost, incomplete, written again"
        lines.append((label, stage, ("episodes", "episodes_lost", "episodes_incomplete", "episode_copies")))
        lines.append((f"{form}: distinct steps, duplicate rows, files", stage, ("steps", "duplicate_rows", "files")))
    lines.append(
        (
            "table → episodes: steps kept, lost, made up, twice",
            "convert",
            ("steps_kept", "steps_lost", "steps_made_up", "duplicate_rows"),
        )
    )
    for stage in LEARNING:
        what = "distinct steps learned from, in so many updates, of so many recorded"
        lines.append((f"{stage.upper()}: {what}", f"{stage}_seen", ("steps_seen", "updates", "steps")))
    lines += [(f"return afterwards, greedy, 100 episodes: {name}", stage, ("return",)) for stage, name in RETURNS]
    rows = []
    for label, stage, names in lines:
        sides = of_stage(stage, runs)
        if sides.our.runs or sides.rllib.runs:
            rows.append((label, cell(sides.our, names), cell(sides.rllib, names)))
    return rows


RETURNS = (("expert", "expert"), ("bc", "BC"), ("marwil", "MARWIL"))


def cell(side: SideSummary, names: Iterable[str]) -> str:
    """The counts one after the other; the least and the most where rounds differ."""
    counts = [side.counts(name) for name in names]
    return ", ".join(map(span, counts)) if all(counts) else "–"


def span(values: Iterable[float]) -> str:
    """One number if all are the same, else from the least to the most."""
    texts = list(dict.fromkeys(f"{value:,.1f}".removesuffix(".0") for value in sorted(values)))
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def short(value: float) -> str:
    """Seconds with as many digits as they deserve."""
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def digits(value: float) -> str:
    """Two digits that count."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def figures(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `figure` prints: a ratio for each stage that has one, and every count of each run."""
    lines: list[dict[str, Any]] = []
    for stage in summary(report):
        if stage.ratio is not None:
            fields: dict[str, Any] = {"seconds": stage.our.seconds, "rllib_seconds": stage.rllib.seconds}
            fields |= {"stage_ratio": stage.stage_ratio, "bound": stage.bound}
            fields |= {"ended": stage.our.ended, "rllib_ended": stage.rllib.ended}
            rounded = {name: round(value, 2) if isinstance(value, float) else value for name, value in fields.items()}
            lines.append({"name": f"vs_rllib.{stage.stage}.ratio", "value": stage.ratio, "unit": "ratio", **rounded})
        for side, it in (("our", stage.our), ("rllib", stage.rllib)):
            for name, value in (("failed", it.failed), ("not_run", it.not_run)):
                if value:
                    lines.append({"name": f"vs_rllib.{stage.stage}.{name}", "value": value, "unit": "runs", "side": side})
    for run in report["runs"]:
        for name, value in run["counts"].items():
            unit = COUNT_UNITS.get(name, "episodes" if name.startswith("episode") else "steps")
            where = {"side": run["side"], "round": run["round"]}
            lines.append({"name": f"vs_rllib.{run['stage']}.{name}", "value": value, "unit": unit, **where})
    return lines


def print_figures(report: Mapping[str, Any]) -> None:
    for line in figures(report):
        figure(**line)


def page(report: Mapping[str, Any], picture: str) -> str:
    """The dated page of results."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    settings = report["settings"]
    changes = "\n".join(f"- {change}" for change in report["changes"])
    revisions = ", ".join(sorted({run["git"] for run in report["runs"] if run["git"]}))
    return PAGE.format(
        date=report["date"],
        table=table(report),
        picture=picture,
        command=COMMAND,
        versions=versions,
        revisions=revisions,
        limit=f"{settings['limit_seconds']:g}",
        target=f"{settings['target_return']:g}",
        changes=changes,
        runs="\n".join(map(run_line, report["runs"])),
        messages="".join(map(message, report["runs"])),
        json=f"{Path(picture).stem}.json",
    )


def run_line(run: Mapping[str, Any]) -> str:
    parts = ", ".join(f"{name} {value:.1f}" for name, value in run["parts"].items())
    side = {"our": "here", "rllib": "RLlib"}[run["side"]]
    outcome = {"finished": "finished", "limit": "ended at the limit", "error": "failed", "not_run": "not run"}[run["outcome"]]
    facts = ", ".join(f"{name} {value:,.6g}" for name, value in run["facts"].items() if isinstance(value, int | float))
    cells = (run["stage"], side, run["round"] + 1, outcome, f"{run['seconds']:.1f}", parts, f"{run['load_before']:.1f}", facts)
    return "| " + " | ".join(map(str, cells)) + " |"


def message(run: Mapping[str, Any]) -> str:
    if not run["message"]:
        return ""
    return f"\n{run['stage']}, {run['side']}, round {run['round'] + 1}:\n\n```\n{run['message']}\n```\n"


PAGE = """# The example of RLlib's document, side by side, {date}

`{command}`, of {revisions}. Made by the program, the table and the raw figures in [{json}]({json}) too.

{table}

![Seconds of each stage]({picture})

{versions}

## What is compared

RLlib runs what its document "Working with offline data" has, to a return of {target:}; what takes longer than {limit} s is
ended and counts as not finished. Each process begins with an empty folder and its own Ray.

- **Expert.** Each side's own PPO with its own settings: RLlib's are the document's, ours the defaults. RLlib stops at the mean
  return of the last 100 episodes it sampled, we at the mean of 100 greedy episodes that were played for it, whose time counts.
- **Recordings.** 10 × 50 episodes by 5 runners there, 500 by one process here, each of its own expert, actions sampled.
- **Table → episodes.** Both read the same files: the table that RLlib recorded. We leave out what is there twice.
- **BC, MARWIL.** Both read the same files, the episodes that RLlib recorded, which we import first, with the same network
  ([256, 256], tanh), batch size (1,024), learning rate (1e-4) and, for MARWIL, β, γ and λ. RLlib stops at the mean of 5
  episodes, sampled, every third update; we at the mean of 100, greedy, every 100th. MARWIL's normaliser is each side's own.
- **Counts** are taken from the files afterwards, by one program for both. A step is its episode, observation, action and next
  observation. An episode is whole if its steps follow each other in one piece to its end. Made up are steps of converted
  episodes that are in no recording. Steps learned from are those in the batches of the first updates of a training
  that was run once more for that, not timed: as many as the line says.
- **Returns afterwards** are of 100 episodes on start states that no training has seen, played by neither system.

RLlib differs from its document in this:

{changes}

## Every run

Seconds of the whole process, of its parts as far as it can tell them apart, and the machine's load (1 minute) before it began.

| stage | side | round | outcome | seconds | parts | load | facts |
|---|---|---|---|---|---|---|---|
{runs}
{messages}"""


def write(report: Mapping[str, Any], base: str) -> None:
    """Write the report as `base`.md, `base`.json and `base`.png."""
    Path(base).parent.mkdir(parents=True, exist_ok=True)
    Path(f"{base}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    Path(f"{base}.md").write_text(page(report, f"{Path(base).name}.png"))
    draw(report, f"{base}.png")
