"""What the episodes of a log say of policies: how much more likely they make what was done, and what a Q function expects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.errors import ConfigError
from offline_core.judging.estimation.config import Horizon, OffPolicyConfig
from offline_core.judging.estimation.estimators import fitting, weighing
from offline_core.judging.estimation.logged import LOG_RATIOS, Weighing, read_logged, read_parts, step_batches, weigh
from offline_core.judging.estimation.observations import TargetPolicy, columns_read
from offline_core.judging.estimation.trajectories import Model, Trajectories
from offline_core.policies.lineage import Lineage, episodes_in
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Evidence:
    """Recorded episodes as estimators take them, and what they are of."""

    episodes: Trajectories
    logged: EpisodeBatch
    """The steps that count, with the logs of `read_logged`."""
    seen: EpisodeBatch | None
    """Those that Q functions are fitted to, with observations and actions; None: no method fits one."""
    horizon: int | None
    """Steps of an episode that count; None: all until it terminates."""
    is_open: np.ndarray
    """(E,) bool, see `open_before`."""
    begins_late: np.ndarray
    """(E,) bool which ones begin after the first step."""


def gather(
    config: OffPolicyConfig,
    policies: Sequence[TargetPolicy],
    behaviour: Policy | None,
    dataset: Dataset,
    *,
    history: Lineage,
    seed: int,
    rewards: np.ndarray | None = None,
) -> list[Evidence]:
    """Read a log once for several policies, and fit a Q function of each to it if a method asks for one.

    Arguments:
        policies: their observations are equal.
        behaviour: the policy that acted; None: by `action_logp`.
        history: of the dataset.
        rewards: (N,) float64 of all steps in the order of `read_logged`, in the place of those that were recorded.
    """
    squashed = _was_squashed(history) if behaviour is None else behaviour.network.squash
    weighs = Weighing(behaviour, explore=config.explore, reaches_bounds=squashed) if weighing(config.methods) else None
    together, begins_late, lengths = read_parts(dataset)
    chosen = _by_lot(together, lengths, config.fqe.max_steps, seed=seed) if fitting(config.methods) else None
    logged, seen = read_logged(dataset, policies, weighs, seen=chosen)
    logged = _paid(logged, rewards)
    horizon = find_horizon(config.horizon, logged)
    logged = cut_to(logged, horizon)
    is_open = open_before(logged, horizon)
    episodes = [
        Trajectories(
            lengths=logged.lengths,
            rewards=logged.of_steps(columns.REWARDS),
            log_ratios=logged.of_steps(LOG_RATIOS)[:, number],
            gamma=config.gamma,
            unrecorded=unrecorded_steps(logged, horizon, config.gamma),
        )
        for number in range(len(policies))
    ]
    if seen is not None and chosen is not None:
        numbers = np.flatnonzero(chosen)
        paid = None if rewards is None else np.split(rewards, np.cumsum(lengths)[:-1])
        seen = _paid(seen, None if paid is None else np.concatenate([paid[number] for number in numbers]))
        seen = cut_to(seen, horizon)
        _refuse_endless(config, is_open, horizon)
        _refuse_unsaid(policies, is_open, horizon)
        models = _models(
            config,
            policies,
            seen,
            horizon,
            dataset,
            returns=episodes[0].returns,
            numbers=numbers,
            together=together,
            paid=paid,
            seed=seed,
        )
        episodes = [replace(each, model=model) for each, model in zip(episodes, models, strict=True)]
    return [Evidence(each, logged, seen, horizon, is_open, begins_late) for each in episodes]


def _by_lot(together: np.ndarray, lengths: np.ndarray, max_steps: int, *, seed: int) -> np.ndarray:
    """(E,) bool of whole trajectories, up to so many steps, one at least; all if they are no more."""
    if lengths.sum() <= max_steps:
        return np.ones(len(lengths), bool)
    heads, of = np.unique(together, return_inverse=True)
    order = np.random.default_rng(derive_seed(seed, "fqe", "steps")).permutation(len(heads))
    steps = np.bincount(of, weights=lengths)[order]
    return np.asarray(np.isin(of, order[: max(1, int(np.searchsorted(np.cumsum(steps), max_steps, side="right")))]))


def _paid(logged: EpisodeBatch, rewards: np.ndarray | None) -> EpisodeBatch:
    if rewards is None:
        return logged
    paid = np.zeros(logged.rows)
    paid[logged.is_step] = rewards
    return replace(logged, columns={**logged.columns, columns.REWARDS: paid})


def _refuse_endless(config: OffPolicyConfig, is_open: np.ndarray, horizon: int | None) -> None:
    if config.gamma == 1 and horizon is None and is_open.any():
        raise ConfigError(
            f"{', '.join(fitting(config.methods))}: {is_open.sum():,} of {len(is_open):,} episodes were truncated or "
            "cut off, and without a discount what would have followed has no limit. Set gamma below 1, horizon to recorded or "
            "to a number of steps, or methods to some of is, wis, pdis, wpdis."
        )


def _refuse_unsaid(policies: Sequence[TargetPolicy], is_open: np.ndarray, horizon: int | None) -> None:
    if horizon is None and is_open.any() and (names := columns_read(policies)):
        raise ConfigError(
            f"{is_open.sum():,} of {len(is_open):,} episodes were truncated or cut off, and the column {names[0]} says nothing "
            "of what follows their last step. Set horizon to recorded or to a number of steps."
        )


def _models(
    config: OffPolicyConfig,
    policies: Sequence[TargetPolicy],
    seen: EpisodeBatch,
    horizon: int | None,
    dataset: Dataset,
    *,
    returns: np.ndarray,
    numbers: np.ndarray,
    together: np.ndarray,
    paid: Sequence[np.ndarray] | None,
    seed: int,
) -> list[Model]:
    """What Q functions that are fitted to episodes `numbers` say of all."""
    from offline_core.judging.estimation.fqe import fit, say

    fitted = fit(
        seen,
        policies,
        config.fqe,
        gamma=config.gamma,
        horizon=horizon,
        explore=config.explore,
        returns=returns[numbers],
        together=together[numbers],
        seed=seed,
    )
    if len(numbers) == len(returns):
        return say(fitted, [(numbers, seen)])
    place = np.full(len(returns), -1)
    place[numbers] = np.arange(len(numbers))
    place[place < 0] = len(numbers) + np.arange(len(returns) - len(numbers))  # never seen: any part may speak of them

    def again() -> Iterator[tuple[np.ndarray, EpisodeBatch]]:
        begin = 0
        with contextlib.closing(step_batches(dataset, policies, by_column=False, needs_next_obs=True)) as batches:
            for batch in batches:
                read = weigh(batch, policies, None, dataset.location.uri, seen=True)
                end = begin + read.num_episodes
                read = _paid(read, None if paid is None else np.concatenate(paid[begin:end]))
                yield place[begin:end], cut_to(read, horizon)
                begin = end

    return say(fitted, again())


def _was_squashed(history: Lineage) -> bool:
    """Whether all policies that recorded are known, and squashed their actions."""
    recorded = episodes_in(history)
    recorders = [
        history.nodes[parent]
        for parent, child in history.edges
        if history.nodes[parent].kind == "checkpoint" and history.nodes[child] in recorded
    ]
    known = [read_policy_manifest(each.uri).network.squash for each in recorders if each.state == "found"]
    return bool(recorders) and len(known) == len(recorders) and all(known)


def find_horizon(wanted: Horizon, logged: EpisodeBatch) -> int | None:
    """Steps that count; None: all until the episode terminates.

    Episodes that all have one length, or that are open (did not terminate) at the longest length alone, are of a fixed
    horizon: that is what `auto` finds. Where open episodes end at several lengths it finds none.

    Raises:
        ConfigError: more steps are asked for than were recorded, and open episodes would have gone on.
    """
    lengths, is_open = logged.lengths, ~logged.at_end(columns.TERMINATEDS)
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
    ends = lengths[is_open] if is_open.any() else lengths
    return longest if wanted == "recorded" or (ends == longest).all() else None


def cut_to(logged: EpisodeBatch, horizon: int | None) -> EpisodeBatch:
    """The same episodes without the steps that do not count."""
    return logged if horizon is None or (logged.lengths <= horizon).all() else logged.head(horizon)


def open_before(logged: EpisodeBatch, horizon: int | None) -> np.ndarray:
    """(E,) bool: the recording ends before the horizon, and the episode would have gone on."""
    return np.asarray(~logged.at_end(columns.TERMINATEDS) & (horizon is None or logged.lengths < horizon))


def unrecorded_steps(logged: EpisodeBatch, horizon: int | None, gamma: float) -> np.ndarray:
    """(E,) discounted steps after the last recorded one that would have counted, in units of that one; it may be infinite.

    How soon episodes would have terminated is taken from the data: at each step as often as at those that were recorded (the
    rate of terminations where some recordings end before them).
    """
    is_open = open_before(logged, horizon)
    goes_on = gamma * (1 - logged.at_end(columns.TERMINATEDS).sum() / len(logged))
    left = np.where(is_open, (np.inf if horizon is None else horizon) - logged.lengths, 0.0)
    return np.asarray(gamma * left if goes_on == 1 else gamma * (1 - goes_on**left) / (1 - goes_on))
