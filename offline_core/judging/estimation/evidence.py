"""What the episodes of a log say of policies: how much more likely they make what was done, and what a Q function expects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import ConfigError
from offline_core.judging.estimation.bootstrap import Groups
from offline_core.judging.estimation.config import EstimateConfig, Horizon
from offline_core.judging.estimation.estimators import fitting, weighing
from offline_core.judging.estimation.fqe import fit, say
from offline_core.judging.estimation.logged import Ends, LogReader, read_parts
from offline_core.judging.estimation.target import TargetPolicy, columns_read
from offline_core.judging.estimation.trajectories import Trajectories
from offline_core.policies.lineage import Lineage, recorders_in
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Evidence:
    """Recorded episodes as estimators take them for each of several policies, and what they are of."""

    episodes: list[Trajectories]
    """Of each policy."""
    seen: EpisodeBatch | None
    """Episodes that Q functions are fitted to, with observations and actions; None if no method fits one."""
    horizon: int | None
    """Steps of an episode that count; None: all until it terminates."""
    is_open: np.ndarray
    """(E,) bool, see `open_before`."""
    begins_late: np.ndarray
    """(E,) bool, whether an episode begins after its first step."""


def gather(
    config: EstimateConfig,
    policies: Sequence[TargetPolicy],
    behaviour: Policy | None,
    dataset: Dataset,
    *,
    history: Lineage,
    seed: int,
    rewards: np.ndarray | None = None,
) -> Evidence:
    """Read a log once for several policies, and fit a Q function of each to it if a method asks for one.

    Memory: what Q functions are fitted to, and some numbers of each episode. Numbers of each step and policy are in files.

    Arguments:
        policies: their observations are equal.
        behaviour: the policy that acted; None: by `action_logp`.
        history: of the dataset.
        rewards: see `LogReader`.
    """
    squashed = _was_squashed(history) if behaviour is None else behaviour.network.squash
    together, begins_late, ends = read_parts(dataset)
    chosen = _by_lot(together, ends.lengths, config.fqe.max_steps, seed=seed) if fitting(config.methods) else None
    horizon = find_horizon(config.horizon, ends)
    ends = ends.cut_to(horizon)
    is_open = open_before(ends, horizon)
    weighs = bool(weighing(config.methods))
    reader = LogReader(dataset, policies, horizon, rewards, weighs, behaviour, config.explore, reaches_bounds=squashed)
    paid, log_ratios, seen = reader.read(int(ends.lengths.sum()), chosen)
    unrecorded = unrecorded_steps(ends, horizon, config.gamma) if is_open.any() else None
    groups = Groups.by_lot(len(is_open))
    episodes = [Trajectories(ends.lengths, paid, own, config.gamma, unrecorded=unrecorded, lot=groups) for own in log_ratios]
    if seen is not None and chosen is not None:
        _refuse_endless(config, is_open, horizon)
        _refuse_unsaid(policies, is_open, horizon)
        fitted = fit(
            seen,
            policies,
            config.fqe,
            gamma=config.gamma,
            horizon=horizon,
            explore=config.explore,
            returns=episodes[0].returns[chosen],
            together=together[chosen],
            seed=seed,
        )
        if chosen.all():
            models = say(fitted, [(np.arange(len(chosen)), seen)], ends.lengths)
        else:
            with contextlib.closing(replace(reader, weighs=False).batches(seen=True)) as again:
                models = say(fitted, _numbered(again, chosen), ends.lengths)
        episodes = [replace(trajectories, model=model) for trajectories, model in zip(episodes, models, strict=True)]
    return Evidence(episodes, seen, horizon, is_open, begins_late)


def _by_lot(together: np.ndarray, lengths: np.ndarray, max_steps: int, *, seed: int) -> np.ndarray:
    """(E,) bool: whole trajectories drawn by lot, at least one, with up to `max_steps` steps; all if they have no more."""
    if lengths.sum() <= max_steps:
        return np.ones(len(lengths), bool)
    heads, of = np.unique(together, return_inverse=True)
    order = np.random.default_rng(derive_seed(seed, "fqe", "steps")).permutation(len(heads))
    steps = np.bincount(of, weights=lengths)[order]
    return np.asarray(np.isin(of, order[: max(1, int(np.searchsorted(np.cumsum(steps), max_steps, side="right")))]))


def _refuse_endless(config: EstimateConfig, is_open: np.ndarray, horizon: int | None) -> None:
    if config.gamma == 1 and horizon is None and is_open.any():
        raise ConfigError(
            f"{', '.join(fitting(config.methods))}: {is_open.sum():,} of {len(is_open):,} episodes were truncated or "
            "cut off, and without a discount what would have followed has no limit. Set gamma below 1, or horizon to recorded "
            "or to a number of steps; an estimate can do without (methods: is, wis, pdis, wpdis)."
        )


def _refuse_unsaid(policies: Sequence[TargetPolicy], is_open: np.ndarray, horizon: int | None) -> None:
    if horizon is None and is_open.any() and (names := columns_read(policies)):
        raise ConfigError(
            f"{is_open.sum():,} of {len(is_open):,} episodes were truncated or cut off, and the column {names[0]} says nothing "
            "of what follows their last step. Set horizon to recorded or to a number of steps."
        )


def _numbered(batches: Iterable[EpisodeBatch], chosen: np.ndarray) -> Iterator[tuple[np.ndarray, EpisodeBatch]]:
    """Yield all episodes with their numbers: chosen ones from 0 on, then those that no function was fitted to."""
    begin, first, others = 0, 0, int(chosen.sum())
    for batch in batches:
        now = chosen[begin : begin + batch.num_episodes]
        yield np.where(now, first + np.cumsum(now) - 1, others + np.cumsum(~now) - 1), batch
        begin, first, others = begin + len(now), first + int(now.sum()), others + int((~now).sum())


def _was_squashed(history: Lineage) -> bool:
    """Whether all policies that recorded are known, and squashed their actions."""
    recorders = recorders_in(history) or []
    return bool(recorders) and all(
        recorder.state == "found" and read_policy_manifest(recorder.uri).network.squash for recorder in recorders
    )


def find_horizon(wanted: Horizon, ends: Ends) -> int | None:
    """Steps that count; None: all until the episode terminates.

    Episodes that all have one length, or that are open (did not terminate) at the longest length alone, are of a fixed
    horizon: that is what `auto` finds. Where open episodes end at several lengths it finds none.

    Raises:
        ConfigError: more steps are asked for than were recorded, and open episodes would have gone on.
    """
    lengths, is_open = ends.lengths, ~ends.terminated
    longest = int(lengths.max())
    if isinstance(wanted, int):
        if wanted > longest and is_open.any():
            raise ConfigError(
                f"horizon is {wanted:,} steps, but the longest of {len(lengths):,} episodes has {longest:,}, and "
                f"{is_open.sum():,} episodes did not terminate: nothing was recorded of the steps after that. Set horizon to "
                f"{longest:,} or less, or to continuing."
            )
        return wanted
    if wanted == "continuing":
        return None
    last = lengths[is_open] if is_open.any() else lengths
    return longest if wanted == "recorded" or (last == longest).all() else None


def open_before(ends: Ends, horizon: int | None) -> np.ndarray:
    """(E,) bool: the recording ends before the horizon, and the episode would have gone on."""
    return np.asarray(~ends.terminated & (horizon is None or ends.lengths < horizon))


def unrecorded_steps(ends: Ends, horizon: int | None, gamma: float) -> np.ndarray:
    """(E,) discounted steps after the last recorded one that would have counted, in units of that one; it may be infinite.

    How soon episodes would have terminated is taken from the data: at each step as often as at those that were recorded (the
    rate of terminations where some recordings end before them).
    """
    is_open = open_before(ends, horizon)
    goes_on = gamma * (1 - ends.terminated.sum() / ends.lengths.sum())
    left = np.where(is_open, (np.inf if horizon is None else horizon) - ends.lengths, 0.0)
    return np.asarray(gamma * left if goes_on == 1 else gamma * (1 - goes_on**left) / (1 - goes_on))
