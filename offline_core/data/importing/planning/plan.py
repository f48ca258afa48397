"""Plan an import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.formats.sources.scans import EPISODES
from offline_core.data.formats.sources.step_reader import Recognised, Unreadable, notes_of
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.mapping import REQUIRED
from offline_core.data.importing.planning.proposal import Proposal, of_episodes, proposed
from offline_core.data.importing.planning.result import Decision, ImportPlan, Refused
from offline_core.data.importing.planning.sample import SourceSample, rows_of, sampled
from offline_core.data.importing.planning.schema import Column, columns_of, shown
from offline_core.data.importing.planning.trial import MAX_REFUSED_SHARE, Trial, lengths, tried
from offline_core.data.importing.report import QUARANTINE_ADVICE
from offline_core.data.importing.roles import in_order
from offline_core.errors import EmptyDatasetError, OfflineError, SchemaError
from offline_core.runtime.code_permission import remember_code
from offline_core.secrets import masked_text

SHOWN_ROWS = 3
SHOWN_IDS = 3


def plan_import(
    config: ImportConfig, *, source: str | Sequence[str], output: str | None = None, is_taken: bool = False
) -> ImportPlan:
    """What an import of `source` would do, and the parameters to continue with; those that are given stay.

    Reads the first rows of at most 24 files. Rows are converted, put in order and made episodes by the code of the import.

    Arguments:
        is_taken: the import goes on with it unseen.

    Raises:
        ConfigError: the format is not known, there are several, or Ray has to read it.
        DataError: no row can be read.
        EmptyDatasetError: there are no files, or no rows in them.
        StorageError: there is no such path, or it cannot be reached.
    """
    remember_code(config)
    paths = [source] if isinstance(source, str) else list(source)
    sample = sampled(config, paths)
    if sample.format == EPISODES:
        return _plan(paths, sample, of_episodes(config, sample))
    if not any(reader.tables for reader in sample.readers):
        _raise_why(sample, paths)
    return _plan(paths, sample, proposed(config, sample, is_taken=is_taken))


def settled(
    config: ImportConfig, paths: Sequence[str], error: OfflineError, output: str = "runs/imported"
) -> tuple[ImportConfig, list[str]]:
    """(the parameters that a plan proposes where an import failed, a sentence on each choice), if the plan is certain.

    Raises:
        OfflineError: `error`, with all that is in the way and the YAML that settles it.
    """
    try:
        config.spaces()  # of which a plan says no more than the error
        sample = sampled(config, paths)
        first = tried(sample.readers, config)
        plan = plan_import(config, source=paths, is_taken=True)
    except (OfflineError, pa.ArrowException):
        raise error from None
    if first.episodes and not first.findings.unreadable:  # it fails on what a plan does not see
        raise error
    if plan.is_certain and plan.settles(config):
        return plan.config, plan.choices
    if advice := plan.advice(output):
        is_of_names = isinstance(error, SchemaError) and error.column in REQUIRED and error.column not in config.mapping
        said = plan.first_obstacle if is_of_names and not {*REQUIRED} <= {*plan.unmapped} else ""
        said = f"{', '.join(paths)}: {said}" if said else str(error)
        if any(decision.name == "columns" for decision in plan.decisions):
            said = said.removesuffix(QUARANTINE_ADVICE)
        error.args = (masked_text(f"{said}\n{advice}"),)
    raise error


def by_other_names(
    config: ImportConfig, paths: Sequence[str], names: Mapping[str, str], output: str
) -> tuple[ImportConfig, list[str]]:
    """(the parameters to go on with, a sentence on each choice) where columns are named like ids or steps.

    Where the rows that a plan looks at become the same episodes without them, they stay extra outputs. A plan is taken where
    it leaves fewer episodes open or in parts, or steps count up in each id. Where a time sorts rows into more parts than they
    lie in, it is none.

    Arguments:
        names: of columns, by the roles that no column has.

    Raises:
        SchemaError: Either may be meant; the message has both.
    """
    try:
        sample = sampled(config, paths)
        before, proposal = tried(sample.readers, config), proposed(config, sample, is_taken=True)
        plan = _plan(paths, sample, proposal)
    except (OfflineError, pa.ArrowException):  # which the import says
        return config, []
    after, taken = proposal.trial, {name for name, role in proposal.roles.items() if name in names and role.needs_mapping}
    is_known = before.error is None and not before.findings.unreadable and plan.is_ready
    if not is_known or after is None or not taken or _contents(before) == _contents(after):
        return config, []
    more = _defects(after) - _defects(before)
    counts_up = plan.order == "t" and columns.EPS_ID in proposal.roles and _defects(after) == after.counts.open_ends
    is_better = more < 0 or (counts_up and _contents(after) != _contents(before, backwards=True))
    if is_better and not (plan.is_guess or config.append):
        return plan.config, plan.choices
    said = " and ".join(f"{names[role]} is named like {role}" for role in sorted(taken))
    if more > 0 and columns.EPS_ID not in taken:
        became = (
            f"the rows that a plan looks at become {len(after.episodes):,} episodes by it and {len(before.episodes):,} without"
        )
        return config, [Recognised(f"{said}, and is an extra output: {became}, more of them open or in parts.")]
    other = names[min(taken)]
    anew = " If each file numbers its episodes anew, set episodes.ids_per: file." if config.append else ""
    raise SchemaError(
        f"{', '.join(paths)}: {said}, and other episodes come of it. If it is none, map it to another name: mapping: "
        f"{{{other}_of_source: {other}}}.{anew}\n{plan.advice(output)}"
    )


def _contents(trial: Trial, *, backwards: bool = False) -> list[tuple[object, ...]]:
    """What was seen, done and paid at the steps of each episode, whatever its id, and how it ended; or in reverse."""
    step = -1 if backwards else 1
    return sorted(
        (
            *(leaf[: len(episode)][::step].tobytes() for leaf in nested.leaves((episode.observations, episode.actions))),
            episode.rewards[::step].tobytes(),
            episode.terminated,
            episode.truncated,
        )
        for episode in trial.episodes
    )


def _defects(trial: Trial) -> int:
    """Rows that cannot be read, and episodes that are open, in parts, or lack steps."""
    counts = trial.counts
    return counts.quarantined_rows + counts.open_ends + counts.restarted_ids + counts.gaps + counts.late_starts


def _raise_why(sample: SourceSample, paths: Sequence[str]) -> None:
    for reader in sample.readers:
        if reader.error is not None:
            raise reader.error
        for batch in reader.held:
            if isinstance(batch, Unreadable):
                raise batch.located_error
    raise EmptyDatasetError(f"There are no rows in {', '.join(paths)}: {len(sample.numbers):,} of {sample.files:,} files read.")


def _plan(paths: Sequence[str], sample: SourceSample, proposal: Proposal) -> ImportPlan:
    trial = proposal.trial or Trial(proposal.config)
    steps = lengths(trial)
    middle = (int(steps.min()), int(np.median(steps)), int(steps.max())) if len(steps) else None
    space = [None if space is None else str(space) for space in trial.spaces]
    return ImportPlan(
        source=list(paths),
        format=sample.format,
        files=sample.files,
        bytes=sample.bytes,
        files_read=len(sample.numbers),
        is_whole=sample.is_whole,
        first_rows=_first_rows(sample),
        columns=_as_in_the_files(proposal, sample),
        roles=in_order(proposal.roles),
        left_out=proposal.left_out,
        chosen=proposal.chosen,
        decisions=[*_undecided_roles(proposal), *proposal.decisions, *_wrong_columns(proposal, trial), *_undecided_rows(trial)],
        order=trial.order,
        counts=trial.counts,
        lengths=middle,
        eps_ids=_first_ids(trial, sample),
        observation_space=space[0],
        action_space=space[1],
        refused=[
            Refused(rows=reason.rows + reason.files, reason=str(reason.first.error), first=reason.first.place)
            for reason in trial.findings.reasons
        ],
        notes=[*dict.fromkeys([*proposal.notes, *trial.findings.notes, *_notes_of(sample)])],
        config=proposal.config,
    )


def _as_in_the_files(proposal: Proposal, sample: SourceSample) -> list[Column]:
    """The columns, those that are encoded with the values that they have before."""
    declared = proposal.config.columns
    if not (numbered := {*declared.encode, *declared.discretise}):
        return proposal.columns
    before = {column.name: column for column in columns_of(sample.readers, rows_of(sample.readers)) if column.name in numbered}
    return [before.get(column.name, column) for column in proposal.columns]


def _notes_of(sample: SourceSample) -> list[str]:
    """What readers took for granted."""
    return [note for reader in sample.readers for table in reader.tables for note in notes_of(table)]


def _first_ids(trial: Trial, sample: SourceSample) -> list[str]:
    """Return the first ids, without those of later parts if rows between the parts may not have been read."""
    eps_ids: list[str] = []
    for episode in trial.episodes:
        if sample.is_whole or not any(episode.eps_id.startswith(f"{eps_id}@") for eps_id in eps_ids):
            eps_ids.append(episode.eps_id)
        if len(eps_ids) == SHOWN_IDS:
            break
    return eps_ids


def _first_rows(sample: SourceSample) -> list[dict[str, str]]:
    if not sample.readers:
        return []
    first = next(reader for reader in sample.readers if reader.tables).tables[0].slice(0, SHOWN_ROWS)
    names = [name for name in first.column_names if not name.startswith("_source_")]
    values = {name: first[name].to_pylist() for name in names}
    return [{name: shown(values[name][row]) for name in names} for row in range(first.num_rows)]


def _undecided_roles(proposal: Proposal) -> list[Decision]:
    return [
        Decision(name=role.name, question=role.reason, candidates=role.candidates)
        for role in in_order(proposal.roles)
        if role.source is None and (role.name in REQUIRED or role.candidates)
    ]


def _wrong_columns(proposal: Proposal, trial: Trial) -> list[Decision]:
    """Ask to correct the columns that are mistaken as a whole: other rows may be as wrong as those that are refused."""
    decisions = []
    for name, rows in trial.wrong_columns.items():
        role = next((role for role in proposal.roles.values() if name in (role.name, *role.sources)), None)
        source = role.sources[0] if role is not None and role.name == name and role.sources else name
        column = next((column for column in proposal.columns if column.name == source), None)
        run = f" They run from {column.minimum} to {column.maximum}." if column is not None and column.minimum else ""
        question = (
            f"column {source} has to be corrected: {100 * rows / trial.counts.rows:.0f} % of its values cannot be "
            f"{name if role is None else role.name}, for the reason below.{run} Do not leave these rows out: the "
            "others may be as wrong"
        )
        decisions.append(Decision(name="columns", question=question))
    return decisions


def _undecided_rows(trial: Trial) -> list[Decision]:
    if trial.error is not None:
        return [Decision(name="parameters", question=str(trial.error))]
    rows = trial.counts.quarantined_rows - sum(trial.wrong_columns.values())
    if not trial.episodes and trial.order and rows:
        return [Decision(name="rows", question="no row that was read can be imported, for the reasons below")]
    if rows > MAX_REFUSED_SHARE * max(1, trial.counts.rows):
        share = rows / trial.counts.rows
        return [
            Decision(
                name="rows",
                question=f"{100 * share:.0f} % of the rows that were read would be left out, for the reasons below",
            )
        ]
    return []
