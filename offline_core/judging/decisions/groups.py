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
"""Values of a column: more are no groups that a person looks at, and share the risk among too many."""

Compare = Callable[[Trajectories, Trajectories | None], Difference]


def groups_of(judging: Dataset, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Which of the E judging episodes that have a step are in which group, (E,) bool by name; reads these columns alone.

    Raises:
        ConfigError: a column is not there, changes within an episode, or has too many values.
    """
    index = judging.index([columns.EPS_ID, columns.LENGTH])
    has_steps = index[columns.LENGTH].to_numpy() > 0
    found: dict[str, np.ndarray] = {}
    for name in names:
        values = values_of(judging, index, name, what="grouped")[has_steps]
        distinct = np.unique(values)
        if len(distinct) > MOST_GROUPS:
            raise ConfigError(
                f"group: {name!r} has {len(distinct):,} values in the judging episodes of {judging.location.uri}, and "
                f"{MOST_GROUPS} can be told: name a column with fewer, such as one that sums them up."
            )
        found |= {f"{name} = {value}": values == value for value in distinct.tolist()}
    return found


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
    found = []
    for name, chosen in groups.items():
        difference, count = None, int(chosen.sum())
        if count >= max(2.0, least):
            known = compare(candidate.select(chosen), None if today is None else today.select(chosen))
            counting = min(known.effective_episodes, known.carrying_episodes)
            difference = known if counting >= least and np.isfinite([known.low, known.high]).all() else None
        found.append(GroupFinding(group=name, episodes=count, difference=difference))
    return found


def with_shown(findings: Sequence[GroupFinding], risk: float) -> list[GroupFinding]:
    """With what is shown at this risk over all groups that are no too small, to both sides (Holm 1979)."""
    known = [(number, each.difference) for number, each in enumerate(findings) if each.difference is not None]
    two_sided = [min(1.0, 2 * min(each.p_value, each.p_worse)) for _, each in known]
    sides = {
        number: "worse" if each.p_worse < each.p_value else "better"
        for (number, each), is_shown in zip(known, holm(two_sided, risk), strict=True)
        if is_shown
    }
    return [each.model_copy(update={"shown": sides.get(number)}) for number, each in enumerate(findings)]
