"""What the episodes of a log say of a policy: how much more likely it makes what was done, and what a Q function expects."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from offline_core.datasets.dataset import Dataset
from offline_core.episodes import EpisodeBatch, columns
from offline_core.errors import ConfigError
from offline_core.estimation.config import OffPolicyConfig
from offline_core.estimation.estimators import fitting, weighing
from offline_core.estimation.horizon import cut_to, find_horizon, open_before, unrecorded_steps
from offline_core.estimation.logged import LOG_RATIOS, Weighing, read_logged, read_parts
from offline_core.estimation.trajectories import Trajectories
from offline_core.policies.lineage import Lineage, episodes_in
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class Evidence:
    """Recorded episodes as estimators take them, and what they are of."""

    episodes: Trajectories
    logged: EpisodeBatch
    """The steps that count; with observations, actions and `INPUTS` if a method fits a Q function."""
    horizon: int | None
    """Steps of an episode that count; None: all until it terminates."""
    is_open: np.ndarray
    """(E,) bool, see `open_before`."""
    begins_late: np.ndarray
    """(E,) bool which ones begin after the first step."""


def gather(
    config: OffPolicyConfig,
    policy: Policy,
    behaviour: Policy | None,
    dataset: Dataset,
    *,
    history: Lineage,
    seed: int,
    rewards: np.ndarray | None = None,
) -> Evidence:
    """Read a log for one policy, and fit a Q function to it if a method asks for one.

    Arguments:
        behaviour: the policy that acted; None: by `action_logp`.
        history: of the dataset.
        rewards: (N,) float64 of all steps in the order of `read_logged`, in the place of those that were recorded.
    """
    squashed = _was_squashed(history) if behaviour is None else behaviour.network.squash
    weighs = Weighing(behaviour, explore=config.explore, reaches_bounds=squashed) if weighing(config.methods) else None
    logged = read_logged(dataset, policy, weighs, seen=bool(fitting(config.methods)))
    if rewards is not None:
        paid = np.zeros(logged.rows)
        paid[logged.is_step] = rewards
        logged = replace(logged, columns={**logged.columns, columns.REWARDS: paid})
    horizon = find_horizon(config.horizon, logged)
    logged = cut_to(logged, horizon)
    together, begins_late = read_parts(dataset)
    episodes = _trajectories(config, logged, policy, together=together, horizon=horizon, seed=seed)
    return Evidence(episodes, logged, horizon, open_before(logged, horizon), begins_late)


def _trajectories(
    config: OffPolicyConfig, logged: EpisodeBatch, policy: Policy, *, together: np.ndarray, horizon: int | None, seed: int
) -> Trajectories:
    """With what a Q function says of them, if a method asks for one."""
    episodes = Trajectories(
        lengths=logged.lengths,
        rewards=logged.of_steps(columns.REWARDS),
        log_ratios=logged.of_steps(LOG_RATIOS),
        gamma=config.gamma,
        unrecorded=unrecorded_steps(logged, horizon, config.gamma),
    )
    if not logged.has_last:
        return episodes
    is_open = open_before(logged, horizon)
    if config.gamma == 1 and horizon is None and is_open.any():
        raise ConfigError(
            f"{', '.join(fitting(config.methods))}: {is_open.sum():,} of {len(logged.lengths):,} episodes were truncated or "
            "cut off, and without a discount what would have followed has no limit. Set gamma below 1, horizon to recorded or "
            "to a number of steps, or methods to some of is, wis, pdis, wpdis."
        )
    from offline_core.estimation.fqe import fit_model

    model = fit_model(
        logged,
        policy,
        config.fqe,
        gamma=config.gamma,
        horizon=horizon,
        explore=config.explore,
        returns=episodes.returns,
        together=together,
        seed=seed,
    )
    return replace(episodes, model=model)


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
