"""Notes on an import, in sentences: where it guessed, and what it changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import gymnasium as gym

from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import columns
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.ends import notes_on_ends
from offline_core.data.importing.report import Counts, Unreadable
from offline_core.data.importing.times import above


def notes_on(counts: Counts, statistics: Statistics) -> list[str]:
    """The notes on ends, times and clipped actions."""
    return [
        *notes_on_ends(counts, statistics),
        *_notes_on_times(counts),
        *_notes_on_clipped(counts, statistics),
        *_notes_on_rewards(statistics),
    ]


def notes_on_choices(declared: StoredSpaces, found: StoredSpaces, statistics: Statistics) -> list[str]:
    """Whether a space cannot be told, or one of actions begins with choices that no row has, as ids from 1 make it."""
    notes = [
        f"The {what} space cannot be told, as for text, and nothing learns from it: give its values numbers by columns.encode, "
        f"or map numbers to {name}."
        for what, name, space in zip(("observation", "action"), (columns.OBS, columns.ACTIONS), found, strict=True)
        if space is None
    ]
    return notes + _notes_on_unused(declared, found, statistics)


def _notes_on_unused(declared: StoredSpaces, found: StoredSpaces, statistics: Statistics) -> list[str]:
    space, known = found[1], (statistics.columns or {}).get(columns.ACTIONS)
    if declared[1] is not None or known is None or not isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return []
    least, most = ([int(number or 0) for number in numbers] for numbers in (known.min, known.max))
    at = next((number for number, low in enumerate(least) if low > 0), None)
    if at is None or (isinstance(space, gym.spaces.Discrete) and int(space.start) != 0):
        return []
    low, high = least[at], most[at]
    of = f"{columns.ACTIONS}[{at}]" if len(least) > 1 else columns.ACTIONS
    unused = "a choice 0" if low == 1 else f"choices 0 to {low - 1:,}"
    if len(least) > 1:
        remedy = "Declare action_space if there are no such choices."
    else:
        remedy = (
            f"If ids begin at {low}, declare action_space: {{space: discrete, n: {high - low + 1}, start: {low}}}; or give "
            "each value a code by columns.encode, with form: index."
        )
    return [f"The action space {space} has {unused} that no row has: {of} are {low} to {high}. {remedy}"]


def reasons_for_none(
    counts: Counts, unreadable: Sequence[Unreadable], config: ImportConfig, quarantine: str | None
) -> list[str]:
    """Why an import gives no episode, as far as known, and what to do."""
    reasons = []
    if unreadable:
        (reason, most), *others = Counter(str(each.error) for each in unreadable).most_common()
        more = f", and {len(others):,} other reasons" if others else ""
        reasons.append(f"Of what cannot be read most ({most:,} of {len(unreadable):,}) has this reason{more}: {reason}")
        reasons.append(f"The first is {unreadable[0].place}; all are listed in {quarantine}.")
    if config.episodes.incomplete == "drop" and counts.dropped_steps:
        has_no_ends = counts.open_ends >= counts.dropped_episodes and not counts.terminations
        why = "no step ends an episode" if has_no_ends else "without an end, or with steps missing"
        reasons.append(
            f"All episodes are incomplete ({why}), and episodes.incomplete: drop leaves them out. "
            "Map the column of ends to terminateds or truncateds, or set episodes.incomplete to cut or keep."
        )
    return reasons


def _notes_on_rewards(statistics: Statistics) -> list[str]:
    known = (statistics.columns or {}).get(columns.REWARDS)
    if known is None or statistics.steps < 2 or known.min != known.max or None in known.min:
        return []
    return [
        f"All rewards are {known.min[0]:.6g}: nothing tells good actions from bad ones but how long episodes last. Look at the "
        "column that is mapped to rewards."
    ]


def _notes_on_clipped(counts: Counts, statistics: Statistics) -> list[str]:
    if not counts.clipped_actions:
        return []
    share = counts.clipped_actions / max(1, counts.rows)
    notes = [
        f"The actions of {counts.clipped_actions:,} steps ({share:.1%}) lay outside the range they were recorded in, and were "
        "clipped to the action space, as RLlib clips what it plays."
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
        notes.append(
            f"{counts.time_gaps:,} times so much time lies between two steps of one id that another episode begins there; "
            f"{counts.shortest_time_gap:,.6g} to {counts.longest_time_gap:,.6g} (seconds, or the unit of t). If these are no "
            f"ends, set a larger one: episodes: {{max_gap: {above(counts.longest_time_gap):g}}}."
        )
    if counts.alternating_ids:
        notes.append(
            f"The steps of {counts.alternating_ids:,} ids alternate in time between files. If each file, folder or day numbers "
            "its episodes by itself, episodes of several are mixed: set episodes.ids_per."
        )
    return notes
