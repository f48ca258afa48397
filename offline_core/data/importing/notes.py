"""Notes on an import, in sentences: where it guessed, and what it changed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import gymnasium as gym
import yaml

from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import columns
from offline_core.data.formats.sources.names import is_minimised
from offline_core.data.formats.sources.step_reader import Recognised
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.report import Counts, Findings
from offline_core.data.importing.times import above
from offline_core.data.inputs.row_steps import as_sql
from offline_core.runtime.units import count_text

MAX_REASONS = 3
"""So many reasons are told of what could not be read."""
NEARLY_ONE = 0.95
"""Actions that are normalised to -1 to 1 come as near to both."""


def yaml_line(value: Mapping[str, Any]) -> str:
    """Return parameters as a line of YAML, without the outermost brackets."""
    line: str = yaml.safe_dump(dict(value), default_flow_style=True, sort_keys=False, width=math.inf, allow_unicode=True)
    return line.strip()[1:-1]


def negated(source: str, taken: Collection[str]) -> dict[str, str]:
    """The computed column, by a name that is not taken, in which a column is turned round."""
    name = next(name for name in ("reward", f"minus {source}", f"reward by {source}") if name not in taken)
    return {name: f"-{as_sql(source)}"}


def notes_on(counts: Counts, statistics: Statistics, rewards: str | list[str] | None) -> list[str]:
    """The notes on ends, times, clipped actions and rewards.

    Arguments:
        rewards: what the mapping makes rewards of.
    """
    return [
        *_notes_on_ends(counts, statistics),
        *_notes_on_times(counts),
        *_notes_on_clipped(counts, statistics),
        *_notes_on_rewards(statistics),
        *_notes_on_costs(statistics, rewards),
    ]


def notes_on_units(statistics: Statistics, space: gym.Space[Any] | None) -> list[str]:
    """A sentence if actions reach from -1 to 1, and no further, in a space that is wider; those of RLlib are told apart."""
    every = statistics.columns or {}
    known = every.get(columns.ACTIONS)
    ends = [] if known is None else [number for number in (*known.min, *known.max) if number is not None]
    if not ends or columns.WEIGHTS_SEQ_NO in every or not isinstance(space, gym.spaces.Box):
        return []
    is_wider = space.is_bounded() and (space.low < -1).all() and (space.high > 1).all()
    least, most = min(ends), max(ends)
    if not is_wider or not -1 <= least < -NEARLY_ONE or not NEARLY_ONE < most <= 1:
        return []
    return [
        f"Actions reach from {least:.4g} to {most:.4g}, and the action space {space} is wider. If they are normalised, as a "
        "policy gives them before they are scaled, what learns from them acts in the wrong unit: set recorded_action_range: "
        "[-1, 1]."
    ]


def reasons_for_none(counts: Counts, findings: Findings, config: ImportConfig, quarantine: str | None) -> list[str]:
    """Say why an import gives no episode, as far as known, and what to do."""
    reasons = notes_on_unreadable(findings)
    if reasons:
        reasons.append(f"All are listed in {quarantine}.")
    if config.episodes.incomplete == "drop" and counts.dropped_steps:
        has_no_ends = counts.open_ends >= counts.dropped_episodes and not counts.terminations
        why = "no step ends an episode" if has_no_ends else "without an end, or with steps missing"
        reasons.append(
            f"All episodes are incomplete ({why}), and episodes.incomplete: drop leaves them out. "
            "Map the column of ends to terminateds or truncateds, or set episodes.incomplete to cut, end or keep."
        )
    return reasons


def notes_on_unreadable(findings: Findings) -> list[str]:
    """Say why rows and files could not be read: the most frequent reasons, a sentence or more each."""
    reasons = findings.reasons
    others = [reason.rows + reason.files for reason in reasons[MAX_REASONS:]]
    more = [f"{sum(others):,} more could not be read, for {count_text(len(others), 'other reason')}."] if others else []
    return [*map(str, reasons[:MAX_REASONS]), *more]


def _notes_on_ends(counts: Counts, statistics: Statistics) -> list[str]:
    """Sentences on ends that are not what they were in the source; none if all are."""
    notes = list[str]()
    ends = counts.terminations - counts.time_limits
    kept = statistics.terminated - counts.declared_ends
    if ends > max(0, kept):
        quarantined = counts.quarantined_terminations
        of_these = f", {quarantined:,} of them in rows that cannot be read" if quarantined else ""
        notes.append(f"{ends - kept:,} of {ends:,} terminations of the source are in no episode{of_these}.")
    if counts.declared_ends and (counts.quarantined_rows or counts.quarantined_files):
        notes.append(
            f"{counts.declared_ends:,} episodes terminate at their last row, as episodes.incomplete: end declares, and not all "
            "rows could be read: of an episode whose last row is one of those, the row before may count as its end."
        )
    if counts.empty_rows:
        notes.append(Recognised(f"Lines without any value are left out: {counts.empty_rows:,}."))
    if counts.final_observations:
        said = (
            f"{counts.final_observations:,} rows with is_last are no steps: they hold the observation after the last step, as "
            "in RLDS. If they are steps, map the column to dones instead."
        )
        notes.append(Recognised(said))
    if counts.dropped_last_steps:
        notes.append(
            f"{counts.dropped_last_steps:,} episodes that do not terminate lost their last step, as its next observation is "
            f"not known; {statistics.terminated:,} terminated ones are whole."
        )
    if counts.repeated_rows:
        notes.append(
            f"{counts.repeated_rows:,} rows equal another one of their id in all values. If they were sent twice, they count "
            "twice; a pruning with drop_duplicates: true leaves them out."
        )
    if counts.lone_rows:
        said = (
            f"{counts.lone_rows:,} rows are an episode each that terminates, as a click or an offer is: nothing says what "
            "follows. If something does, map it to new_obs, or what says where episodes end to dones or eps_id."
        )
        notes.append(Recognised(said))  # by episodes.order, which says it
    elif counts.repeated_last_obs:
        known = (
            f"The observation after {counts.repeated_last_obs:,} last steps is not in the source; the one before is repeated"
        )
        valued = counts.repeated_last_obs - statistics.terminated
        goes_on = (
            f", and what learns values uses it at {valued:,} of them, which do not terminate. If episodes end there by "
            f"themselves, map what says so to dones{'' if counts.declared_ends else ', or set episodes.incomplete: end'}"
        )
        notes.append(f"{known}{goes_on}." if valued > 0 else Recognised(f"{known}."))
    return notes


def _notes_on_rewards(statistics: Statistics) -> list[str]:
    known = (statistics.columns or {}).get(columns.REWARDS)
    if known is None or statistics.steps < 2 or known.min != known.max or None in known.min:
        return []
    return [
        f"All rewards are {known.min[0]:.6g}: nothing tells good actions from bad ones but how long episodes last. Look at the "
        "column that is mapped to rewards."
    ]


def _notes_on_costs(statistics: Statistics, rewards: str | list[str] | None) -> list[str]:
    known = (statistics.columns or {}).get(columns.REWARDS)
    if known is None or not isinstance(rewards, str) or not is_minimised(rewards) or known.mean[0] <= 0:
        return []
    computed = negated(rewards, {rewards})
    line = {"columns": {"computed": computed}, "mapping": {columns.REWARDS: next(iter(computed))}}
    return [
        f"The reward is {rewards}, which is named like something to be minimised and is {known.mean[0]:,.6g} on average; "
        f"larger rewards are learned as better. If smaller ones are, turn it round: {yaml_line(line)}."
    ]


def _notes_on_clipped(counts: Counts, statistics: Statistics) -> list[str]:
    if not counts.clipped_actions:
        return []
    share = counts.clipped_actions / max(1, counts.rows)
    notes = [
        f"The actions of {counts.clipped_actions:,} steps ({100 * share:.1f} %) lay outside the range they were recorded in, "
        "and were clipped to the action space, as RLlib clips what it plays."
    ]
    logs = (statistics.columns or {}).get(columns.ACTION_LOGP)
    if logs is not None and any(logs.nan):
        notes.append(
            f"{columns.ACTION_LOGP} of clipped actions is not known (NaN): it was of the sample before, and no "
            f"{columns.ACTION_DIST_INPUTS} of a Gaussian say what clipping makes of it. Estimates need 'behaviour' instead."
        )
    return notes


def _notes_on_times(counts: Counts) -> list[str]:
    notes = []
    if counts.time_gaps and counts.longest_time_gap is not None:
        least, most = f"{counts.shortest_time_gap:,.6g}", f"{counts.longest_time_gap:,.6g}"
        times = "Once" if counts.time_gaps == 1 else f"{counts.time_gaps:,} times"
        notes.append(
            f"{times} so much time lies between two steps of one id that another episode begins there; "
            f"{least if least == most else f'{least} to {most}'} (seconds, or the unit of t). If "
            f"{'this is no end' if counts.time_gaps == 1 else 'these are no ends'}, set a larger one: "
            f"episodes: {{max_gap: {above(counts.longest_time_gap):g}}}."
        )
    if counts.gaps and not counts.quarantined_rows:
        notes.append(
            f"Steps are missing at {count_text(counts.gaps, 'place')} within episodes, by t or by new_obs: what comes after is "
            "a part of its own. If no step is missing there, correct t, or set episodes.order."
        )
    if counts.alternating_ids:
        notes.append(
            f"The steps of {counts.alternating_ids:,} ids alternate in time between files. If each file, folder or day numbers "
            "its episodes by itself, episodes of several are mixed: set episodes.ids_per."
        )
    if counts.set_back_ids:
        notes.append(
            f"In the order of the source the times of {counts.set_back_ids:,} ids go back by up to an hour, as local "
            "times do when the clock is set back: in order of time the steps of two hours are mixed. Write UTC or offsets; or, "
            "if rows lie in the order of the steps, set episodes.order: stored."
        )
    return notes
