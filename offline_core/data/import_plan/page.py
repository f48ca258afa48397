"""A plan as text, for people who never saw the tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offline_core.data.import_plan.result import ImportPlan
from offline_core.data.import_plan.schema import Column

MAX_COLUMNS = 40
MAX_REFUSED = 8
WIDTH = 150


def page_of(plan: ImportPlan) -> str:
    """The verdict first; all but the YAML."""
    parts = [list(part) for part in (_head(plan), _rows(plan), _columns(plan), _roles(plan), _episodes(plan), _refused(plan))]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(plan: ImportPlan) -> Iterator[str]:
    yield plan.verdict
    for number, decision in enumerate(plan.decisions, 1):
        candidates = f" Candidates: {', '.join(decision.candidates)}." if decision.candidates else ""
        yield f"  {number}. {decision.name}: {_sentence(decision.question)}{candidates}"
    read = "all rows of all files were read" if plan.is_whole else f"the first rows of {plan.files_read:,} of them were read"
    files = "1 file" if plan.files == 1 else f"{plan.files:,} files"
    yield f"{', '.join(plan.source)}: {plan.format}, {files}, {plan.bytes:,} bytes; {read}."


def _rows(plan: ImportPlan) -> Iterator[str]:
    if plan.first_rows:
        names = list(plan.first_rows[0])[:MAX_COLUMNS]
        yield "First rows"
        yield from _table([[name, *(row[name] for row in plan.first_rows)] for name in names])


def _columns(plan: ImportPlan) -> Iterator[str]:
    if not plan.columns:
        return
    yield "Columns"
    head = ["name", "type", "nulls", "different", "least", "most", ""]
    yield from _table([head, *(_column(column, plan) for column in plan.columns[:MAX_COLUMNS])])
    if (more := len(plan.columns) - MAX_COLUMNS) > 0:
        yield f"  … and {more:,} more"


def _column(column: Column, plan: ImportPlan) -> list[str]:
    remarks = []
    if len(column.types) > 1:
        remarks.append("; ".join(f"{kind} in {files:,} files" for kind, files in column.types.items()))
    if column.missing_files:
        remarks.append(f"missing in {column.missing_files:,} files")
    if column.name in plan.left_out:
        remarks.append(f"left out: {plan.left_out[column.name]}")
    numbers = [f"{column.nulls:,}", "" if column.distinct is None else f"{column.distinct:,}"]
    return [column.name, column.type, *numbers, column.minimum or "", column.maximum or "", "; ".join(remarks)]


def _roles(plan: ImportPlan) -> Iterator[str]:
    if not plan.roles:
        return
    yield "What the columns are taken for"
    rows = []
    for role in plan.roles:
        source = "to decide" if role.source is None else ", ".join(role.sources)
        others = f"; or {', '.join(role.candidates)}" if role.source is not None and role.candidates else ""
        rows.append([role.name, source, f"{role.reason}{others}"])
    yield from _table(rows)
    taken = {source for role in plan.roles for source in role.sources} | {*plan.left_out}
    if plan.is_ready and (extras := [column.name for column in plan.columns if column.name not in taken]):
        yield f"  extra outputs, kept as they are: {', '.join(extras)}"


def _episodes(plan: ImportPlan) -> Iterator[str]:
    counts = plan.counts
    if not plan.order:
        return
    yield "Episodes, of the rows that were read"
    rows = [["order", _ORDERS.get(plan.order, plan.order)]]
    rows += [[name, f"{_value(plan, name)}: {reason}"] for name, reason in plan.chosen.items() if reason and name not in _SAID]
    rows.append(["rows", str(counts)])
    if plan.lengths is not None:
        least, middle, most = plan.lengths
        rows.append(["steps of an episode", f"{least:,} to {most:,}, median {middle:,}"])
    ended = counts.terminations - counts.quarantined_terminations
    cut = "" if plan.is_whole else " (or are cut off by what was read)"
    rows.append(["ends", f"{ended:,} terminations; {counts.open_ends:,} episodes end without a flag{cut}"])
    rows.append(["ids", ", ".join(plan.eps_ids) + (", …" if counts.episodes > len(plan.eps_ids) else "")])
    rows += [["observations", str(plan.observation_space)], ["actions", str(plan.action_space)]]
    yield from _table(rows)
    yield from (f"  note: {note}" for note in plan.notes)


_SAID = ("source.format", "source.columns", "unreadable")
"""What other parts of the page say."""
_ORDERS = {
    "t": "t: column t numbers the steps",
    "time": "time: column t sorts the steps",
    "linked": "linked: each step is followed by the one whose obs is its new_obs",
    "stored": "stored: as the rows lie",
    "single_step": "single_step: each row by itself",
    "episodes": "the files hold whole episodes",
}


def _value(plan: ImportPlan, name: str) -> object:
    group, _, last = name.rpartition(".")
    return getattr(getattr(plan.config, group) if group else plan.config, last)


def _refused(plan: ImportPlan) -> Iterator[str]:
    if not plan.refused:
        return
    yield "Rows that cannot be imported, among those that were read"
    for each in plan.refused[:MAX_REFUSED]:
        yield f"  {each.rows:,} rows: {_sentence(each.reason)} The first: {each.first}."
    if more := plan.refused[MAX_REFUSED:]:
        yield f"  {sum(each.rows for each in more):,} rows for {len(more):,} other reasons"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell if i == len(row) - 1 else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield _cut("  " + "  ".join(cells).rstrip())


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return f"{text}."
