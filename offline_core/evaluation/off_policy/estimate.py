"""Estimates what a policy would come to from what another has played: no environment is needed, and none is touched."""

from __future__ import annotations

import functools
import logging
import time

import gymnasium as gym
import numpy as np

from offline_core.episodes import columns
from offline_core.errors import ConfigError, PromotionError, StorageError
from offline_core.evaluation.off_policy.bootstrap import interval
from offline_core.evaluation.off_policy.config import OffPolicyConfig
from offline_core.evaluation.off_policy.estimators import METHODS, Estimator
from offline_core.evaluation.off_policy.logged import read_logged
from offline_core.evaluation.off_policy.result import Estimate, Interval, OffPolicyResult
from offline_core.evaluation.off_policy.trajectories import Trajectories
from offline_core.lineage import lineage
from offline_core.policies.checkpoint import fingerprint_of, load_policy, read_policy_manifest
from offline_core.policies.encoder import leaf_spaces
from offline_core.policies.policy import Policy
from offline_core.progress import progress
from offline_core.seeding import derive_seed
from offline_core.storage.dataset import Dataset, open_dataset
from offline_core.storage.kept import keep, kept
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, identity_of
from offline_core.storage.reader import spaces_of

log = logging.getLogger(__name__)

ESTIMATES = "_estimates"
"""Folder inside a checkpoint."""
CHOSEN_BY = ("prune_dataset",)
"""Operations after which the episodes of a dataset are not those of a policy any more, but a choice of them."""
_GATE = {"require_return", "gate_method"}


def estimate_policy(config: OffPolicyConfig, *, policy: str, dataset: str, version: int | None = None) -> OffPolicyResult:
    """What the policy would come to where the dataset was recorded, by each method, with an interval.

    The result is kept at `<policy>/_estimates`, and found by the next call for the same. What the policy has to come to is
    not looked at here: see `enforce`.

    Arguments:
        policy: URI of a checkpoint.
        dataset: URI of a dataset whose episodes tell how probable their actions were (`action_logp`), unless
            `config.behaviour` does.
        version: of the dataset; the latest if None.

    Raises:
        CheckpointError: there is no policy, or no behaviour.
        ConfigError: the policy does not fit the data, or a method does not fit the policy.
        DataError: the data is not what it has to be; SchemaError if nobody knows how probable its actions were.
        LearningError: the Q function grew beyond every number.
    """
    start = time.perf_counter()
    manifest = read_policy_manifest(policy)
    opened = open_dataset(dataset, version)
    acted = None if config.behaviour is None else read_policy_manifest(config.behaviour)
    operation = Operation.of("estimate_policy", config, exclude={*_GATE, "behaviour"})
    parents = [manifest.parent_entry(policy), opened.parent_entry]
    if acted is not None and config.behaviour is not None:
        parents.append(acted.parent_entry(config.behaviour))
    identity = identity_of(operation, parents)
    place = Location.of(policy).child(f"{ESTIMATES}/{identity}.json")
    if found := kept(place, identity, OffPolicyResult, fingerprint=fingerprint_of):
        return found
    evaluated = load_policy(policy, manifest)
    behaviour = None if config.behaviour is None else load_policy(config.behaviour, acted)
    for each in (evaluated, *([behaviour] if behaviour else [])):
        _check_spaces(each, opened)
    _check_methods(config, evaluated)
    episodes, open_episodes = _weighed(config, opened, evaluated, behaviour)
    recorded, estimates = _estimated(config, episodes)
    result = OffPolicyResult(
        uri=place.uri,
        checkpoint=policy,
        dataset=opened.ref,
        behaviour=config.behaviour,
        gamma=config.gamma,
        confidence=config.confidence,
        recorded=recorded,
        estimates=estimates,
        warnings=[*_doubts_about(opened), *_doubts_about_size(estimates, config)],
        open_episodes=open_episodes,
        seconds=time.perf_counter() - start,
    )
    try:
        keep(place, identity, result, made={policy: manifest.fingerprint})
    except StorageError as error:  # a policy may lie where nobody may write, and the caller has the result
        log.warning("The estimate is not kept beside the policy: %s", error)
    for warning in result.warnings:
        log.warning("%s", warning)
    told = ", ".join(f"{name} {each.value:.4g} ({each.low:.4g} to {each.high:.4g})" for name, each in estimates.items())
    log.info("Policy %s on %s: %s; recorded %.4g", policy, opened.ref, told, recorded.value)
    return result


def enforce(result: OffPolicyResult, config: OffPolicyConfig) -> None:
    """Stops unless the lower end of the interval of `config.gate_method` reaches `config.require_return`.

    Raises:
        PromotionError: it does not, or too few episodes count for it to mean anything.
    """
    if config.require_return is None:
        return
    name, wanted = config.gate_method, config.require_return
    found = result.estimates[name]
    told = (
        f"{result.checkpoint} is not shown to reach a discounted return of {wanted:g} on {result.dataset.uri}: {name} says "
        f"{found.value:.4g}, {result.confidence:.0%} of resamples are within {found.low:.4g} to {found.high:.4g}"
    )
    size = found.effective_episodes
    if size is not None and size < config.min_effective_episodes:
        raise PromotionError(
            f"{told}, but that is of {size:.1f} effective episodes, and {config.min_effective_episodes:g} are needed "
            "(min_effective_episodes). Record more episodes, or episodes of a policy that is more like this one."
        )
    if not wanted <= found.low < np.inf:
        raise PromotionError(
            f"{told}. Record more episodes if the value reaches it and its interval is wide, train a better policy, or lower "
            "require_return."
        )
    log.info("Policy %s: %s is at least %.4g, and %g is required", result.checkpoint, name, found.low, wanted)


def _check_spaces(policy: Policy, dataset: Dataset) -> None:
    observation_space, action_space = spaces_of(dataset)
    if observation_space is not None and action_space is not None:
        policy.check_spaces(f"of dataset {dataset.location.uri}", (observation_space, action_space))


def _check_methods(config: OffPolicyConfig, policy: Policy) -> None:
    fitting = [name for name in config.methods if METHODS[name].needs_model]
    weighing = [name for name in config.methods if METHODS[name].size is not None]
    if policy.network.recurrent and fitting:
        raise ConfigError(
            f"{', '.join(fitting)}: a Q function sees single observations, and this policy goes by all before them, too. "
            "Set methods to some of is, wis, pdis, wpdis."
        )
    if not config.explore and weighing and any(isinstance(leaf, gym.spaces.Box) for leaf in leaf_spaces(policy.action_space)):
        raise ConfigError(
            f"{', '.join(weighing)}: no recorded action is ever the most likely one of {policy.action_space}. Set explore to "
            "true, or methods to [fqe]."
        )


def _weighed(config: OffPolicyConfig, dataset: Dataset, policy: Policy, behaviour: Policy | None) -> tuple[Trajectories, int]:
    """(episodes, how many of them did not terminate)"""
    fitting = [name for name in config.methods if METHODS[name].needs_model]
    logged = read_logged(
        dataset,
        policy,
        behaviour=behaviour,
        explore=config.explore,
        weighed=any(METHODS[name].size for name in config.methods),
        seen=bool(fitting),
    )
    make = functools.partial(
        Trajectories,
        lengths=logged.lengths,
        rewards=logged.rewards,
        log_ratios=logged.log_ratios,
        gamma=config.gamma,
    )
    episodes, open_episodes = make(), int((~logged.terminated).sum())
    if not fitting:
        return episodes, open_episodes
    if config.gamma == 1 and open_episodes:
        raise ConfigError(
            f"{', '.join(fitting)}: {open_episodes:,} of {len(episodes):,} episodes were truncated or cut off, and without a "
            "discount nobody can say what would have followed. Set gamma below 1, or methods to some of is, wis, pdis, wpdis."
        )
    from offline_core.evaluation.off_policy.fqe import fit_model

    model = fit_model(
        logged,
        policy,
        config.fqe,
        gamma=config.gamma,
        explore=config.explore,
        returns=episodes.returns,
        seed=derive_seed(config.seed, "estimate_policy"),
    )
    return make(model=model), open_episodes


def _estimated(config: OffPolicyConfig, episodes: Trajectories) -> tuple[Interval, dict[str, Estimate]]:
    """(what was recorded, what each method says)"""
    bounds = functools.partial(
        interval,
        episodes=len(episodes),
        resamples=config.resamples,
        confidence=config.confidence,
        seed=derive_seed(config.seed, "estimate_policy", "resamples"),
    )
    once = np.ones((1, len(episodes)))
    low, high = bounds(lambda counts: (counts @ episodes.returns) / len(episodes))
    recorded = Interval(value=float(episodes.returns.mean()), low=low, high=high)
    estimates: dict[str, Estimate] = {}
    with progress(len(config.methods), what="resample", unit="method") as bar:
        for name in config.methods:
            method = METHODS[name]
            of: Estimator = method.estimate
            low, high = bounds(functools.partial(of, episodes))
            size = method.size(episodes) if method.size else None
            estimates[name] = Estimate(
                value=float(of(episodes, once)[0]),
                low=low,
                high=high,
                effective_episodes=size.episodes if size else None,
                largest_weight=size.largest if size else None,
            )
            bar.update(1)
    return recorded, estimates


def _doubts_about(dataset: Dataset) -> list[str]:
    """What the history of a dataset says against weighing its episodes."""
    doubts = []
    uri = dataset.location.uri
    made = [node for node in lineage(uri, dataset.manifest.version).nodes if node.kind == "dataset" and node.state == "there"]
    recordings = [open_dataset(node.uri, node.version) for node in made if node.operation == "record_episodes"]
    if greedy := [each.ref.uri for each in recordings if each.manifest.operation.config.get("explore") is False]:
        doubts.append(
            f"{greedy[0]} was recorded without exploration: its {columns.ACTION_LOGP} is not how its actions came about, and "
            "what else could have been done is not in it. Record with explore."
        )
    if chosen := sorted({node.operation for node in made if node.operation in CHOSEN_BY}):
        doubts.append(
            f"Episodes of {uri} were chosen ({', '.join(chosen)}): if that was by how they went, no weight makes up for it. "
            "Estimate on what was recorded."
        )
    return doubts


def _doubts_about_size(estimates: dict[str, Estimate], config: OffPolicyConfig) -> list[str]:
    few = {
        name: each.effective_episodes
        for name, each in estimates.items()
        if each.effective_episodes is not None and each.effective_episodes < config.min_effective_episodes
    }
    if not few:
        return []
    told = ", ".join(f"{name} {size:.1f}" for name, size in few.items())
    return [
        f"So few episodes count that these estimates mean nothing (effective episodes: {told}). Record more, or episodes of a "
        "policy that is more like this one."
    ]
