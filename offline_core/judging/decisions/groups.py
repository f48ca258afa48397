"""A candidate beside what runs today in some of the judging episodes: by the values of columns, and at the ends of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from offline_core.data.curation.split import values_of
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.judging.decisions.comparison import holm
from offline_core.judging.decisions.result import Difference, GroupFinding
from offline_core.judging.estimation.trajectories import Trajectories

MOST_GROUPS = 50
"""Most values of a column that is grouped by: a person does not look at more, and they would share the risk."""

Compare = Callable[[Trajectories, Trajectories | None], Difference]


def groups_of(judging: Dataset, names: Sequence[str], *, log: str) -> dict[str, np.ndarray]:
    """Which of the E judging episodes that have a step are in which group, (E,) bool by name; reads these columns alone.

    Arguments:
        log: what the episodes are of, in messages.

    Raises:
        ConfigError: a column is not there, changes within an episode, or has too many values.
    """
    index = judging.index([columns.EPS_ID, columns.LENGTH])
    has_steps = index[columns.LENGTH].to_numpy() > 0
    groups: dict[str, np.ndarray] = {}
    for name in names:
        values = values_of(judging, index, name, what=f"{log} cannot be grouped")[has_steps]
        distinct = np.unique(values)
        if len(distinct) > MOST_GROUPS:
            raise ConfigError(
                f"group: {name!r} has {len(distinct):,} values in the judging episodes of {log}, and "
                f"{MOST_GROUPS} can be told: name a column with fewer, such as one that sums them up."
            )
        groups |= {f"{name} = {value}": values == value for value in distinct.tolist()}
    return groups


def effects(
    groups: Mapping[str, np.ndarray],
    candidate: Trajectories,
    today: Trajectories | None,
    compare: Compare,
    *,
    least: float,
) -> list[GroupFinding]:
    """The difference in each group, by what was read and fitted for all episodes.

    Arguments:
        today: None: what the log recorded.
        compare: gives the difference of both on the same episodes.
        least: effective episodes below which a difference means nothing.
    """
    findings = []
    for name, chosen in groups.items():
        difference, count = None, int(chosen.sum())
        if count >= max(2.0, least):
            measured = compare(candidate.select(chosen), None if today is None else today.select(chosen))
            counting = min(measured.effective_episodes, measured.carrying_episodes)
            difference = measured if counting >= least and np.isfinite([measured.low, measured.high]).all() else None
        findings.append(GroupFinding(group=name, episodes=count, difference=difference))
    return findings


def with_shown(findings: Sequence[GroupFinding], risk: float) -> list[GroupFinding]:
    """The findings with what is shown to both sides, at this risk over all groups that are not too small (Holm 1979)."""
    tested = [(number, finding.difference) for number, finding in enumerate(findings) if finding.difference is not None]
    two_sided = [min(1.0, 2 * min(difference.p_value, difference.p_worse)) for _, difference in tested]
    sides = {
        number: "worse" if difference.p_worse < difference.p_value else "better"
        for (number, difference), is_shown in zip(tested, holm(two_sided, risk), strict=True)
        if is_shown
    }
    return [finding.model_copy(update={"shown": sides.get(number)}) for number, finding in enumerate(findings)]
