"""The plan of an import: what was read, what it is taken for, and the parameters to continue with."""

from __future__ import annotations

import html
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from offline_core.control_characters import visible, visible_line
from offline_core.data.episodes import columns
from offline_core.data.formats.sources.names import ENDS, UNDERSTOOD, is_minimised
from offline_core.data.formats.sources.step_reader import Recognised
from offline_core.data.importing.columns_config import last_reading
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.mapping import REQUIRED
from offline_core.data.importing.notes import negated
from offline_core.data.importing.planning.schema import Column
from offline_core.data.importing.report import Counts
from offline_core.data.importing.roles import Role
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.units import count_text, cut_text, size_text
from offline_core.secrets import masked

MAX_COLUMNS = 40
MAX_REFUSED = 8
PAGE_WIDTH = 150
YAML_WIDTH = 120
"""A comment that makes a line longer stands above it."""


class Decision(BaseModel):
    """Something that the data does not say."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="The parameter, or the canonical column.")
    question: str
    candidates: list[str] = []


class Refused(BaseModel):
    """Rows that the import could not read, and why."""

    model_config = ConfigDict(frozen=True)

    rows: int
    reason: str
    first: str = Field(description="The place of the first one.")


class ImportPlan(BaseModel):
    """What an import of a source would do, told from the first rows of a few files. Nothing is written by making one."""

    model_config = ConfigDict(frozen=True)

    source: list[str]
    format: str
    files: int
    bytes: int
    files_read: int = Field(description="Of which the first rows were read.")
    is_whole: bool = Field(description="All rows of all files were read.")
    first_rows: list[dict[str, str]] = Field(description="As they lie in the first file.")
    columns: list[Column]
    roles: list[Role]
    left_out: dict[str, str] = Field(description="Columns that are not mapped and cannot be kept, and why.")
    chosen: dict[str, str] = Field(description="Parameters that the plan sets, or a person who was asked, and why.")
    decisions: list[Decision] = Field(description="What is left to decide; empty: ready to import.")
    order: str = Field(description="Which rule puts the steps in order; empty: not known yet.")
    counts: Counts = Field(description="What became of the rows that were read.")
    lengths: tuple[int, int, int] | None = Field(description="Steps of an episode: the least, the median, the most.")
    eps_ids: list[str] = Field(description="Of the first episodes.")
    observation_space: str | None
    action_space: str | None
    refused: list[Refused]
    notes: list[str]
    config: ImportConfig = Field(description="The parameters to continue with.")

    @property
    def is_ready(self) -> bool:
        """Nothing is left to decide."""
        return not self.decisions

    @property
    def gaps(self) -> dict[str, int]:
        """How many of the rows that were read have no value, by the columns that a step needs or may need.

        Where rows are without an id or a time, as one of totals is, no value makes steps of as many.
        """
        needed = {columns.OBS, columns.ACTIONS, columns.REWARDS}
        names = {name for role in self.roles if role.name in needed for name in (*role.sources, *role.candidates)}
        filled = {*self.config.columns.fill, *self.config.columns.late_with_gaps}
        placed = {name for role in self.roles if role.name in (columns.EPS_ID, columns.T) for name in role.sources}
        unplaced = max((column.nulls for column in self.columns if column.name in placed), default=0)
        missing = [
            column for column in self.columns if column.nulls > unplaced and column.name in names and column.name not in filled
        ]
        return {
            column.name: column.nulls for column in missing if column.name not in {*self.config.columns.encode, *self.texts}
        }

    @property
    def fills(self) -> dict[str, int]:
        """What may stand in gaps. A reward or an action that is not known is no number: such rows are left out.

        A reward that last rows alone have is 0 before.
        """
        known, seen = set[str](), set[str]()
        for role in self.roles:
            if role.name in (columns.REWARDS, columns.ACTIONS):
                known |= {*role.sources, *role.candidates[:1]}
            elif role.name == columns.OBS:
                seen |= {*role.sources, *role.candidates}
        at_ends = {name for role in self.roles for name in role.at_ends}
        return dict.fromkeys((name for name in self.gaps if name not in known - seen - at_ends), 0)

    @property
    def turned_round(self) -> dict[str, str]:
        """What makes a reward of the likeliest column for it, if that is named like something to be minimised."""
        likeliest = [role.candidates[0] for role in self.roles if role.name == columns.REWARDS and role.candidates]
        is_open = any(decision.name == columns.REWARDS for decision in self.decisions)
        names = {column.name for column in self.columns}
        return negated(likeliest[0], names) if is_open and likeliest and is_minimised(likeliest[0]) else {}

    @property
    def texts(self) -> dict[str, Any]:
        """How to encode columns of text that are not mapped yet: the likeliest for actions, and those for observations."""
        kinds = {column.name: column for column in self.columns if column.name not in self.config.columns.encode}
        encodings = dict[str, Any]()
        for role in self.roles:
            if role.source is None and role.name in (columns.OBS, columns.ACTIONS):
                likely = role.candidates if role.name == columns.OBS else role.candidates[:1]
                for name in [
                    name
                    for name in likely
                    if name in kinds and kinds[name].type == "text" and name not in self.config.columns.encode
                ]:
                    missing = {"other": True} if kinds[name].nulls else "auto"
                    encodings[name] = missing if role.name == columns.OBS else {"form": "index"}
        return encodings

    @property
    def ends_are_unknown(self) -> bool:
        """No column of rows of steps and no parameter says how episodes end, or whether they do."""
        is_told = not self.roles or any(role.source is not None for role in self.roles if role.name in ENDS)
        is_declared = "incomplete" in self.config.episodes.model_fields_set
        return self.counts.open_ends > 0 and not is_told and not is_declared

    @property
    def is_mostly_refused(self) -> bool:
        """More rows would be left out than imported: that is a mistake of the parameters, and not of rows."""
        return self.counts.rows > 0 and 2 * self.counts.quarantined_rows > self.counts.rows

    @property
    def is_certain(self) -> bool:
        """Nothing is left to decide, no column may be another one as well, no row is left out, and no rule is guessed."""
        is_left_out = self.config.unreadable == "quarantine" and "unreadable" not in self.chosen  # as the caller wants it
        return self.is_ready and not self.is_guess and (is_left_out or not self.refused)

    @property
    def is_guess(self) -> bool:
        """A column may be another one as well, or a rule of episodes is guessed."""
        is_chosen = self.chosen.keys() - _CERTAIN - {"unreadable"}
        return bool(is_chosen) or any(role.candidates or not role.is_sure for role in self.roles)

    @property
    def unmapped(self) -> list[str]:
        """What each row needs and no column is known to be."""
        return [role.name for role in self.roles if role.name in REQUIRED and role.source is None]

    @property
    def first_obstacle(self) -> str:
        """What is in the way first, in a sentence; empty if nothing is."""
        if self.unmapped:
            names = ", ".join(self.unmapped)
            there = ", ".join(column.name for column in self.columns)
            return f"There is no column {names} and none is mapped to it; there are {there}."
        if self.decisions and (self.decisions[0].name not in ("rows", "columns") or not self.refused):
            return _sentence(f"{self.decisions[0].name}: {self.decisions[0].question}")
        if self.refused:
            first = self.refused[0]
            return f"{count_text(first.rows, 'row')} cannot be imported: {_sentence(first.reason)} The first: {first.first}."
        open_roles = [role for role in self.roles if role.candidates]
        if open_roles:
            role = open_roles[0]
            return f"{role.name} may be {', '.join([*role.sources, *role.candidates])}."
        return next(iter(self.guesses), "")

    @property
    def guesses(self) -> list[str]:
        """What the plan decided and another may decide otherwise, a sentence each."""
        unsure = [role for role in self.roles if role.needs_mapping and not role.is_sure]
        said = [f"{role.name} may be {', '.join(role.sources)}: {role.reason}." for role in unsure]
        told = {role.name for role in unsure}
        read = {f"mapping.{name}" for name in REQUIRED if name not in told}
        chosen = {
            name: why
            for name, why in self.chosen.items()
            if why and (name in read or not name.startswith((*_CERTAIN, "mapping.")))
        }
        values = self.config.model_dump(mode="json", exclude_unset=True)
        return said + [f"{name} may be {_flow(_inside(values, name))}: {why}." for name, why in chosen.items()]

    @property
    def choices(self) -> list[str]:
        """What the plan decided, a sentence each: where it is certain, no more than what it recognised."""
        roles = [role for role in self.roles if role.needs_mapping]
        said = [Recognised(f"{role.name} is {', '.join(role.sources)}: {role.reason}.") for role in roles]
        chosen = {name: why for name, why in self.chosen.items() if why and name not in (*_SAID, "columns")}
        values = self.config.model_dump(mode="json", exclude_unset=True)
        return [*said, *(Recognised(f"{name} is {_flow(_inside(values, name))}: {why}.") for name, why in chosen.items())]

    def settles(self, config: ImportConfig) -> bool:
        """Whether the plan decides more than an import finds by itself."""
        roles = {role.name for role in self.roles if role.needs_mapping} - {*UNDERSTOOD}
        return bool(roles or self.chosen.keys() - {"source.format"}) and self.config != config

    def advice(self, output: str) -> str:
        """Describe all that is in the way of an import, and how to go on; empty if there is nothing to say."""
        lines = [f"{number}. {_asked(decision)}" for number, decision in enumerate(self.decisions, 1)]
        lines += _refused(self)
        scope = "All" if self.is_whole else "As far as the first rows show, all"
        head = [f"{scope} that is in the way:", *lines] if lines else []
        if not (self.choices or self.decisions or self.gaps):
            return "\n".join(head)
        yaml = [line for line in self.yaml.splitlines() if not line.startswith("# offline import ")][1:]
        to_do = "This YAML settles it; complete it" if self.decisions or self.gaps else "This YAML is a guess; check it"
        if self.is_mostly_refused:
            rows = "No row" if self.counts.quarantined_rows == self.counts.rows else "Hardly a row"
            to_do = f"{rows} can be imported by this YAML as it is: mend what is said of the rows above, complete it"
        elif any(decision.name == "columns" for decision in self.decisions):
            to_do = "Once the column is corrected, in the source or by columns.computed, complete this YAML"
        return "\n".join([*head, f"{to_do}, and go on with {self.command(output)}:", *yaml])

    @property
    def verdict(self) -> str:
        """The first sentence."""
        if not self.decisions:
            rows = self.counts.quarantined_rows
            return f"Ready to import; {rows:,} of {self.counts.rows:,} rows would be left out." if rows else "Ready to import."
        names = ", ".join(decision.name for decision in self.decisions)
        return f"{len(self.decisions)} {'thing' if len(self.decisions) == 1 else 'things'} to decide: {names}."

    @property
    def refusals(self) -> list[str]:
        """Which rows cannot be imported, and why."""
        return [visible_line(line) for line in _refused(self)]

    @property
    def yaml(self) -> str:
        """The parameters with their reasons as comments, for `offline import SOURCE -c FILE`."""
        return self.yaml_for(self.command())

    def yaml_for(self, command: str) -> str:
        """The same for a file of another name, or another output: `command` is what to type next."""
        return "".join(f"{visible_line(line)}\n" for line in _lines(self, command))

    @property
    def page(self) -> str:
        """What was read and what it is taken for, as text."""
        of = (_head(self), _rows(self), _columns(self), _roles(self), _episodes(self), _notes(self), _refused(self))
        parts = [list(part) for part in of]
        return "\n\n".join("\n".join(map(visible_line, part)) for part in parts if part) + "\n"

    def command(self, output: str = "runs/imported", parameters: str = "plan.yaml") -> str:
        """What to type next."""
        sources = " ".join(map(shlex.quote, self.source))
        return f"offline import {sources} -o {shlex.quote(output)} -c {shlex.quote(parameters)}"

    def __str__(self) -> str:
        return f"{self.page}\n{self.yaml}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        roles = [[role.name, ", ".join(role.sources) or "to decide", role.reason] for role in self.roles]
        card = Card(
            "Import plan",
            {"Source": ", ".join(self.source), "Format": self.format},
            sentence=self.verdict,
            word="Ready" if self.is_ready else "To decide",
            verdict="good" if self.is_ready else "fair",
            notes=self.notes,
            sections=[
                Section("To decide", [_asked(decision) for decision in self.decisions]),
                Section("What the columns are taken for", columns=["", "column", "why"], rows=roles),
                Section("Columns", columns=_COLUMN_HEAD, rows=[_column(column, self) for column in self.columns[:MAX_COLUMNS]]),
                Section("Rows that cannot be imported", [*self.refusals][1:]),
            ],
        )
        return f"{card.html(is_page=False)}<pre style='white-space: pre-wrap'>{html.escape(self.yaml)}</pre>"


def _head(plan: ImportPlan) -> Iterator[str]:
    yield plan.verdict
    for number, decision in enumerate(plan.decisions, 1):
        yield f"  {number}. {_asked(decision)}"
    read = "all rows of all files were read" if plan.is_whole else f"the first rows of {plan.files_read:,} of them were read"
    yield f"{', '.join(plan.source)}: {plan.format}, {count_text(plan.files, 'file')}, {size_text(plan.bytes)}; {read}."


def _asked(decision: Decision) -> str:
    candidates = f" Candidates: {', '.join(decision.candidates)}." if decision.candidates else ""
    return f"{decision.name}: {_sentence(decision.question)}{candidates}"


def _rows(plan: ImportPlan) -> Iterator[str]:
    if plan.first_rows:
        names = list(plan.first_rows[0])[:MAX_COLUMNS]
        yield "First rows"
        yield from _table([[name, *(row[name] for row in plan.first_rows)] for name in names])


_COLUMN_HEAD = ["name", "type", "nulls", "different", "least", "most", ""]


def _columns(plan: ImportPlan) -> Iterator[str]:
    if not plan.columns:
        return
    yield "Columns"
    yield from _table([_COLUMN_HEAD, *(_column(column, plan) for column in plan.columns[:MAX_COLUMNS])])
    if (more := len(plan.columns) - MAX_COLUMNS) > 0:
        yield f"  … and {more:,} more"


def _column(column: Column, plan: ImportPlan) -> list[str]:
    remarks = []
    if len(column.types) > 1:
        remarks.append("; ".join(f"{kind} in {count_text(files, 'file')}" for kind, files in column.types.items()))
    if column.missing_files:
        remarks.append(f"missing in {count_text(column.missing_files, 'file')}")
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
    said = (*_SAID, *_OF_ROWS, *(f"mapping.{name}" for name in plan.config.mapping))  # roles stand above
    chosen = [
        (name, reason)
        for name, reason in plan.chosen.items()
        if reason and name not in said and not name.startswith("columns.encode.")
    ]
    rows = [["order", _ORDERS.get(plan.order, plan.order)]]
    rows += [[name, f"{attrgetter(name)(plan.config)}: {reason}"] for name, reason in chosen]
    rows.append(["rows", str(counts)])
    if plan.lengths is not None:
        least, middle, most = plan.lengths
        rows.append(["steps of an episode", f"{least:,} to {most:,}, median {middle:,}"])
    ended = counts.terminations - counts.quarantined_terminations
    cut = "" if plan.is_whole else " (or are cut off by what was read)"
    open_ends = f"{count_text(counts.open_ends, 'episode')} {'ends' if counts.open_ends == 1 else 'end'} without a flag{cut}"
    over = "; if they are over there, set episodes.incomplete: end" if plan.ends_are_unknown else ""
    rows.append(["ends", f"{count_text(ended, 'termination')}; {open_ends}{over}"])
    rows.append(["ids", ", ".join(plan.eps_ids) + (", …" if counts.episodes > len(plan.eps_ids) else "")])
    spaces = {"observations": plan.observation_space, "actions": plan.action_space}
    rows += [[name, space] for name, space in spaces.items() if space is not None]
    yield from _table(rows)


_CERTAIN = {"source.format", "columns.encode", "columns.computed", "observation_space", "action_space"}
"""Parameters whose choice loses nothing, and takes nothing for another."""
_SAID = ("source.format", "source.columns", "unreadable")
"""What other parts of the page say."""
_OF_ROWS = ("mapping", "columns.encode", "columns.discretise", "columns.computed")
"""What is no rule of episodes: the YAML has it, with the reason as a comment."""
_ORDERS = {
    "t": "t: column t numbers the steps",
    "time": "time: column t sorts the steps",
    "linked": "linked: each step is followed by the one whose obs is its new_obs",
    "stored": "stored: as the rows lie",
    "single_step": "single_step: each row by itself",
    "episodes": "the files hold whole episodes",
}


def _notes(plan: ImportPlan) -> Iterator[str]:
    yield from (f"  note: {note}" for note in plan.notes)


def _inside(values: Mapping[str, Any], name: str) -> Any:
    for part in name.split("."):
        values = values[part]
    return values


def _refused(plan: ImportPlan) -> Iterator[str]:
    if not plan.refused:
        return
    yield "Rows that cannot be imported, among those that were read"
    for refusal in plan.refused[:MAX_REFUSED]:
        yield f"  {count_text(refusal.rows, 'row')}: {_sentence(refusal.reason)} The first: {refusal.first}."
    if more := plan.refused[MAX_REFUSED:]:
        yield f"  {count_text(sum(refusal.rows for refusal in more), 'row')} for {len(more):,} other reasons"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell if i == len(row) - 1 else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield cut_text("  " + "  ".join(cells).rstrip(), PAGE_WIDTH)


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return f"{text}."


def _lines(plan: ImportPlan, command: str) -> Iterator[str]:
    values = masked(plan.config.model_dump(mode="json", exclude_unset=True))
    yield f"# {plan.verdict}"
    yield f"# {command}"
    for group in ("source", "mapping", "episodes"):
        inner = list(_mapping(plan, values) if group == "mapping" else _group(plan, group, values.pop(group, {})))
        if any(not line.lstrip().startswith("#") for line in inner):
            yield f"{group}:"
            yield from inner
        elif inner:
            yield f"# {group}:"
            yield from (f"# {line.replace('# ', '', 1)}" for line in inner)
    for name, space in (("observation_space", plan.observation_space), ("action_space", plan.action_space)):
        if space is not None and name not in values and "environment" not in values:
            yield f"# {name}: {_one_line(space)}   # inferred from the rows; declare it to have another one"
    yield from _gaps(plan)
    for name, value in values.items():
        inside = [reason for parameter, reason in plan.chosen.items() if parameter.startswith(f"{name}.")]
        yield from _line("", name, value, plan.chosen.get(name, "; ".join(inside) or "given"))


def _group(plan: ImportPlan, group: str, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield from _line("  ", name, value, plan.chosen.get(f"{group}.{name}", "given"))
    if group == "episodes":
        if plan.order not in ("", "episodes") and "order" not in values:
            yield f"  # order: {plan.order}, by auto"
        yield from (
            _undecided(decision.name, decision.question, decision.candidates)
            for decision in plan.decisions
            if decision.name == "ids_per"
        )


def _mapping(plan: ImportPlan, values: dict[str, Any]) -> Iterator[str]:
    mapping = dict(values.pop("mapping", {}))
    for role in plan.roles:
        if role.source is None:
            made = [*plan.turned_round] if role.name == columns.REWARDS else []
            yield _undecided(role.name, role.reason, [*made, *role.candidates])
        elif role.needs_mapping:
            mapping.pop(role.name, None)
            yield from _line("  ", role.name, role.source, role.reason)
    for name, source in mapping.items():
        yield from _line("  ", name, source, plan.chosen.get(f"mapping.{name}", "given"))


def _undecided(name: str, question: str, candidates: list[str]) -> str:
    """A comment that becomes a parameter without its first sign: the likeliest candidate, or all for what is a vector."""
    first = candidates[0] if candidates else "?"
    is_pair = name == columns.EPS_ID and first.startswith("[")
    value = _flow(candidates) if candidates and name == columns.OBS else first if is_pair else _flow(first)
    others = candidates[1:] if name != columns.OBS else []
    more = f"; or {', '.join(others)}" if others else ""
    return "  " + _one_line(f"# {name}: {value}   # to decide: {question}{more}")


def _gaps(plan: ImportPlan) -> Iterator[str]:
    """What fills the columns of which some rows have no value, and encodes those of text that may be mapped."""
    gaps, texts, fills, computed = plan.gaps, plan.texts, plan.fills, plan.turned_round
    known = plan.config.model_dump(mode="json", exclude_unset=True).get("columns", {})
    more: dict[str, Any] = {"encode": {**known.get("encode", {}), **texts}} if texts else {}
    more |= {"fill": {**known.get("fill", {}), **fills}} if fills else {}
    more |= {"computed": {**known.get("computed", {}), **computed}} if computed else {}
    become = "has to become numbers (actions by form: index)"
    said = [f"what is mapped of {', '.join(texts)} is text, and {become}"] if texts else []
    said += [f"{name} is {expression}, for larger rewards are better" for name, expression in computed.items()]
    if fills:
        count = ", ".join(f"{count_text(nulls, 'row')} without {name}" for name, nulls in gaps.items() if name in fills)
        said.append(f"{count}: fill them, or leave them out:")
    below = "in place of the line below: " if known else ""
    if more:
        yield f"# columns: {_flow({**known, **more})}   # {below}{'; '.join(said)}"
    observed = [name for role in plan.roles if role.name == columns.OBS for name in (*role.sources, *role.candidates)]
    if plan.order != "single_step" and (readings := [name for name in observed if name in fills]):
        late = {made: reading for name in readings for made, reading in last_reading(name).items()}
        others = {name: value for name, value in more["fill"].items() if name not in readings}
        made = {**known, **more, "fill": others, "in_episode": {**known.get("in_episode", {}), **late}}
        instead = _flow({name: value for name, value in made.items() if value})
        yield f"# or, with these in obs, the last readings: columns: {instead}"
    if plan.config.unreadable != "fail":
        return
    if left := [f"{count_text(nulls, 'row')} without {name}" for name, nulls in gaps.items() if name not in fills]:
        yield f"# unreadable: quarantine   # leaves out {', '.join(left)}, as no number can stand there"
    elif gaps or (any(decision.name == "rows" for decision in plan.decisions) and not plan.is_mostly_refused):
        yield "# unreadable: quarantine"


def _line(indent: str, name: str, value: Any, reason: str) -> Iterator[str]:
    text = f"{indent}{_flow(name)}: {_flow(value)}"
    comment = f"# {_one_line(reason)}"
    if len(text) + len(comment) + 3 <= YAML_WIDTH:
        yield f"{text}   {comment}"
    else:
        yield f"{indent}{comment}"
        yield text


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False)
    if visible(text) != text:  # else a reader would see another name than the parser
        text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _one_line(text: str) -> str:
    return " ".join(text.split())
