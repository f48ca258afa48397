"""A log whose end is not like its beginning: what was done and paid at both, and which judging episodes are of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gymnasium as gym
import numpy as np
import polars as pl
from scipy.stats import ks_2samp, mannwhitneyu

from offline_core.data.curation.split import BY_TIME
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import columns
from offline_core.data.inputs.number_names import number_names
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.result import Candidate, GroupFinding, LogPart
from offline_core.runtime.units import count_text

DRIFT_RISK = 1e-4
REWARD_DISTANCE = 0.3
"""Kolmogorov and Smirnov's distance between the mean rewards of episodes of both ends, from which on a log drifts."""
FEW, ENOUGH = 5, 30
"""Fewest episodes of a third, for returns and for rewards."""
MOST_RANKED = 1_000_000
"""Most episodes of a third that are compared; of more, so many are drawn by lot."""
ENDS = ("first third", "last third")
MOST_STEPS = 20_000
"""Steps of each end whose actions are looked at."""
MOST_NUMBERS = 8
"""Most numbers of a Box, or actions of a list, that are told."""


def about_drift(dataset: Dataset, in_time: np.ndarray) -> Iterator[str]:
    """Say that the end of the log is not like its beginning.

    Arguments:
        in_time: (episodes,) see `Dataset.in_time`.
    """
    index = dataset.index([columns.RETURN, columns.LENGTH])[in_time]
    returns, paid = index[columns.RETURN].to_numpy(), (index[columns.RETURN] / index[columns.LENGTH]).to_numpy()
    third = len(index) // 3
    if third < FEW:
        return
    some: slice | np.ndarray = slice(None)
    if third > MOST_RANKED:
        some = np.random.default_rng(third).permutation(third)[:MOST_RANKED]
    if mannwhitneyu(returns[:third][some], returns[-third:][some]).pvalue < DRIFT_RISK:
        yield (
            f"The returns of {dataset.location.uri} drift: {returns[:third].mean():.4g} in its first third, "
            f"{returns[-third:].mean():.4g} in its last. What ran, or what it ran in, has changed."
        )
    distance = float(ks_2samp(paid[:third][some], paid[-third:][some], method="asymp").statistic)
    if distance > REWARD_DISTANCE and third >= ENOUGH:
        yield (
            f"What a step of {dataset.location.uri} is paid is another at its end (a distance of {distance:.2f} from its "
            "beginning): if the definition of the reward was changed, compute all rewards anew before anything is decided."
        )


def ends_of(source: Dataset, in_time: np.ndarray) -> list[LogPart]:
    """The first and the last third of a log, in the order of time."""
    index = source.index([columns.RETURN, columns.LENGTH])
    returns, lengths, third = index[columns.RETURN].to_numpy(), index[columns.LENGTH].to_numpy(), len(index) // 3
    nearest = [in_time, in_time[::-1]]
    ends = []
    for name, order in zip(ENDS, nearest, strict=True):
        own = order[:third]
        looked = np.zeros(len(index), bool)
        looked[own[: 1 + int(np.searchsorted(np.cumsum(lengths[own]), MOST_STEPS))]] = True
        ends.append(
            LogPart(name=name, episodes=third, mean_return=float(returns[own].mean()), actions=_actions(source, index, looked))
        )
    return ends


def judging_in(source: Dataset, judging: Dataset, in_time: np.ndarray) -> dict[str, np.ndarray]:
    """Which judging episodes that have a step belong to each end, (E,) bool by the name of the end."""
    keys = [columns.EPS_ID, columns.T_STARTED]
    number = pl.Series("number", np.argsort(in_time))
    order = source.index(keys).select(keys).with_columns(number).unique(keys, keep="first")
    own = judging.index([*keys, columns.LENGTH]).filter(pl.col(columns.LENGTH) > 0)
    numbers = own.join(order, on=keys, how="left", maintain_order="left")["number"].to_numpy()
    episodes = source.ref.episodes
    third = episodes // 3
    return dict(zip(ENDS, (numbers < third, numbers >= episodes - third), strict=True))


def in_words(parts: Sequence[LogPart], first: Candidate, config: DecisionConfig) -> Iterator[str]:
    """Say on which part of the log a decision stands, and what to do."""
    if not parts:
        return
    by_time = config.by == BY_TIME
    stands = f"the last {100 * config.judge_share:g} % of the log" if by_time else "episodes from all over the log"
    effects = f": {first.name} comes to {', and to '.join(map(_effect, first.parts))}" if first.parts else ""
    do = "decide again on a newer log" if by_time else "decide with by=time, or on a newer log"
    yield f"This decision stands on {stands}{effects}. If what holds now is what counts, {do}."


def _effect(finding: GroupFinding) -> str:
    told = finding.difference or "nothing that can be told"
    return f"{told} in the {finding.group} ({count_text(finding.episodes, 'judging episode')})"


def _actions(source: Dataset, index: pl.DataFrame, looked: np.ndarray) -> dict[str, float]:
    space, made_of = source.spaces[1], source.manifest.input_columns
    if not isinstance(space, gym.spaces.Discrete | gym.spaces.Box):
        return {}
    taken = [
        np.asarray(episode.actions).reshape(len(episode), -1)
        for group, numbers in source.indexed_row_groups(index)
        if len(numbers) and looked[numbers].any()
        for episode in group.episodes(only=looked[numbers])
        if len(episode)
    ]
    if not taken:
        return {}
    actions = np.concatenate(taken)
    if isinstance(space, gym.spaces.Box):
        means = actions.astype(np.float64).mean(axis=0)[:MOST_NUMBERS]
        return dict(zip(number_names(columns.ACTIONS, actions.shape[1])[:MOST_NUMBERS], means.tolist(), strict=True))
    values, counts = np.unique(actions[:, 0], return_counts=True)
    most = np.sort(np.argsort(-counts, kind="stable")[:MOST_NUMBERS])
    labels = None if made_of is None else made_of.labels
    names = [str(value if labels is None else labels[int(value) - int(space.start)]) for value in values[most]]
    return dict(zip(names, (counts[most] / counts.sum()).tolist(), strict=True))
