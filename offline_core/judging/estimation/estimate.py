"""Estimates what a policy would come to from what another has played: no environment is needed, and none is touched."""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING

import numpy as np

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.episodes import columns
from offline_core.data.episodes.spaces import has_box
from offline_core.data.inputs.input_columns import MEANING
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, DataError, PromotionError
from offline_core.judging.estimation import diagnostics
from offline_core.judging.estimation.bootstrap import interval
from offline_core.judging.estimation.config import CLONE_UPDATES, EstimateConfig
from offline_core.judging.estimation.contenders import contenders_of
from offline_core.judging.estimation.estimators import METHODS, fitting, unrecorded_share, weighing
from offline_core.judging.estimation.result import ESTIMATES, Estimate, EstimateResult, Interval, return_name, reward_name
from offline_core.judging.estimation.trajectories import Trajectories
from offline_core.policies.lineage import lineage
from offline_core.policies.manifest import find_policy, fingerprint_of
from offline_core.runtime.config import without_defaults
from offline_core.runtime.progress import progress
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.stage import DATASET, VERSION, Made, candidate, stage
from offline_core.runtime.units import number_text

if TYPE_CHECKING:
    from offline_core.judging.estimation.target import TargetPolicy
    from offline_core.policies.policy import Policy

log = logging.getLogger(__name__)

_GATE = {"require_return", "gate_method"}
_ASKED = {"gamma", "horizon", "explore", "behaviour", "noise"}
"""Parameters that say what is estimated, and not how."""


def enforce(result: EstimateResult, config: EstimateConfig) -> None:
    """Stops unless the lower end of the interval of `config.gate_method` reaches `config.require_return`.

    Raises:
        ConfigError: that method was not asked for its estimate.
        PromotionError: it does not, too few episodes count or one counts too much, or most of it was not recorded.
    """
    if config.require_return is None:
        return
    name, wanted = config.gate_method, config.require_return
    if name not in result.estimates:
        raise ConfigError(f"gate_method {name} is none of the methods that were estimated: {', '.join(result.estimates)}.")
    estimate = result.estimates[name]
    told = (
        f"{result.checkpoint} is not shown to reach a {return_name(result.gamma)} of {wanted:g} on {result.dataset.uri} with "
        f"{'sampled' if result.explore else 'greedy'} actions (horizon: {result.told_horizon}): {name} says "
        f"{number_text(estimate.value)}, {100 * result.confidence:g} % of resamples are within "
        f"{number_text(estimate.low)} to {number_text(estimate.high)}"
    )
    size = estimate.effective_episodes
    if size is not None and size < config.min_effective_episodes:
        raise PromotionError(
            f"{told}, but that is of {size:.1f} effective episodes, and {config.min_effective_episodes:g} are needed "
            "(min_effective_episodes). Record more episodes, or episodes of a policy that is more like this one."
        )
    if (largest := estimate.largest_weight or 0.0) > diagnostics.MOST_WEIGHT:
        raise PromotionError(
            f"{told}, but one episode has {100 * largest:.0f} % of all weights. Record more episodes, or episodes of a policy "
            "that is more like this one."
        )
    if result.unrecorded_share > diagnostics.MOST_UNRECORDED:
        raise PromotionError(
            f"{told}, but most of that return was not recorded, and nothing shows what is said of it. If episodes end where "
            "their recordings do, set horizon to recorded or to a number of steps; otherwise record longer episodes, or lower "
            "gamma."
        )
    if not wanted <= estimate.low < np.inf:
        raise PromotionError(
            f"{told}. Record more episodes if the value reaches it and its interval is wide, train a better policy, or lower "
            "require_return."
        )
    log.info("Policy %s: %s is at least %.4g, and %g is required", result.checkpoint, name, estimate.low, wanted)


@stage(
    "estimate",
    version=11,
    after="evaluate",
    arguments=(candidate("estimate"), DATASET, VERSION),
    hint="-s require_return=… says how much is enough.",
    gate=enforce,
    short=("behaviour", "gamma", "methods", "require_return"),
)
def estimate(config: EstimateConfig, *, policy: str, dataset: str, version: int | None = None) -> Made[EstimateResult]:
    """Estimate a policy's return from recorded episodes without playing it, and stop if it is too little.

    What the policy would come to where the dataset was recorded, by each method, with an interval. The result is kept at
    `<policy>/_estimates`, or at `<dataset>/_estimates` if the policy is no checkpoint. What the policy has to come to is not
    looked at here: see `enforce`.

    Arguments:
        policy: URI of a checkpoint, of an ONNX file or of another dataset, whose behaviour is meant, the address of a
            registered policy, `rule:…`, `function:…` or `column:…`; see `Contender`.
        dataset: URI of a dataset whose episodes tell how probable their actions were (`action_logp`), unless
            `config.behaviour` does.
        version: of the dataset; the latest if None.

    Raises:
        CheckpointError: there is no policy, or no behaviour.
        ConfigError: the policy does not fit the data or the behaviour, or a method does not fit the policy.
        DataError: the data is not what it has to be, or a clone of a behaviour is too far off; SchemaError if the
            probabilities of its actions are unknown.
        LearningError: the Q function grew beyond every number.
    """
    start = time.perf_counter()
    opened = open_dataset(dataset, version)
    [contender] = contenders_of([policy], opened, noise=config.noise)
    is_checkpoint = contender.kind == "checkpoint"
    acted = None
    if config.behaviour is not None:
        behaviour_uri, acted = find_policy(config.behaviour)
        config = config.model_copy(update={"behaviour": behaviour_uri})
    parents = [contender.parent, opened.parent_entry]
    if acted is not None and config.behaviour is not None:
        parents.append(acted.parent_entry(config.behaviour))
    begun = yield StoredResult(
        EstimateResult,
        Location.of(contender.uri if is_checkpoint else opened.location.uri).child(ESTIMATES),
        parents,
        fingerprint_of,
        outputs=lambda result: [result.checkpoint] if is_checkpoint else [],
        config=config,
        exclude={*_GATE, "behaviour"},
        name="{identity}.json",
        is_beside=True,
    )
    from offline_core.judging.estimation.evidence import gather  # here, for what is reused needs no Torch
    from offline_core.judging.estimation.propensities import about_recorded
    from offline_core.policies.checkpoint import load_policy

    evaluated = contender.policy
    behaviour = None if config.behaviour is None else load_policy(config.behaviour, acted)
    check_policies(config, evaluated, behaviour, opened)
    if contender.recording is not None:
        from offline_core.judging.estimation.clones import with_clones

        folder = opened.location.child(ESTIMATES)
        [contender] = with_clones([contender], folder, by="episodes", stage="estimate", updates=CLONE_UPDATES, seed=config.seed)
        if contender.reasons:
            raise DataError(f"Of {contender.name} nothing is estimated: {contender.reasons[0]}.")
        evaluated = contender.policy
    history = lineage(opened.location.uri, opened.manifest.version)
    seed = derive_seed(config.seed, "estimate_policy")
    evidence = gather(config, [evaluated], behaviour, opened, history=history, seed=seed)
    [episodes], horizon, is_open = evidence.episodes, evidence.horizon, evidence.is_open
    recorded, continued, estimates = _estimated(config, episodes)
    open_episodes, share = int(is_open.sum()), unrecorded_share(episodes)
    result = EstimateResult(
        uri=begun.file.uri,
        checkpoint=contender.uri,
        recording=None if contender.recording is None else contender.recording.ref,
        dataset=opened.ref,
        behaviour=config.behaviour,
        explore=config.explore,
        gamma=1.0 if horizon == 1 else config.gamma,
        reward=reward_name(history),
        horizon=horizon,
        confidence=config.confidence,
        min_effective_episodes=config.min_effective_episodes,
        recorded=recorded,
        continued=continued if is_open.any() else None,
        estimates=estimates,
        warnings=[
            *diagnostics.about_origin(contender, history, opened),
            *diagnostics.about_clone(contender),
            *diagnostics.about_noise(config.noise, [contender]),
            *diagnostics.about_history(opened, history),
            *diagnostics.about_parts(evidence.begins_late),
            *(diagnostics.about_sampling(contender.manifest) if config.explore else []),
            *diagnostics.about_weights(episodes, by=config.behaviour or columns.ACTION_LOGP),
            *(about_recorded(evidence.seen, evaluated) if behaviour is None and evidence.seen is not None else []),
            *diagnostics.about_horizon(config, episodes.lengths, is_open, share),
            *([*diagnostics.about_convergence(config, open_episodes, horizon)] or diagnostics.about_q(episodes)),
            *diagnostics.about_size(estimates, config),
        ],
        open_episodes=open_episodes,
        unrecorded_share=share,
        seconds=time.perf_counter() - start,
        asked=without_defaults(config, include=_ASKED),
    )
    told = ", ".join(f"{name} {estimate}" for name, estimate in result.estimates.items())
    where = f"{result.dataset}, horizon {result.told_horizon}"
    log.info("Policy %s on %s: %s; recorded %.4g", result.checkpoint, where, told, recorded.value)
    return result


def check_policies(config: EstimateConfig, policy: TargetPolicy, behaviour: Policy | None, dataset: Dataset) -> None:
    """Check that a policy, trained or not, can be estimated so from this dataset.

    Raises:
        ConfigError: It does not fit the data, the behaviour or the methods.
    """
    check_fits(policy, dataset)
    if behaviour is not None:
        check_fits(behaviour, dataset)
    _check_methods(config, policy)
    if weighing(config.methods):
        _check_behaviour(policy, behaviour)


def check_fits(policy: TargetPolicy, dataset: Dataset) -> None:
    """Check that what a policy would do at the steps of this dataset can be known.

    Raises:
        ConfigError: It has other spaces, or goes by more than observations.
    """
    from offline_core.policies.policy import Policy  # it needs Torch

    observation_space, action_space = dataset.spaces
    if isinstance(policy, Policy) and observation_space is not None and action_space is not None:
        policy.check_spaces(f"dataset {dataset.location.uri}", (observation_space, action_space))
        log = dataset.manifest.input_columns
        if (
            log is not None
            and policy.input_columns is not None
            and (differences := policy.input_columns.differences(log, only=MEANING))
        ):
            raise ConfigError(
                f"The policy learned from other columns or labels than {dataset.location.uri} has, so the same numbers mean "
                f"other things: {differences}. Import the log as the dataset of the policy was, or name a policy that learned "
                "from such a log."
            )
    if policy.network.transformer is not None:
        raise ConfigError(
            "A decision transformer cannot be estimated yet: it goes by the return that it plays for, too. Play it with "
            "'offline evaluate'."
        )


def _check_methods(config: EstimateConfig, policy: TargetPolicy) -> None:
    from offline_core.judging.estimation.stated import FunctionOfObservations, ProbabilityColumn  # they need Torch

    fitted, weighed = fitting(config.methods), weighing(config.methods)
    if policy.network.recurrent and fitted:
        raise ConfigError(
            f"{', '.join(fitted)}: a Q function sees single observations, and this policy goes by all before them, too. "
            "Set methods to some of is, wis, pdis, wpdis."
        )
    if isinstance(policy, ProbabilityColumn) and not policy.says_all and (fitted or not config.explore):
        raise ConfigError(
            f"{', '.join(fitted) or 'explore=false'}: the column {policy.column} says how probable the recorded action is to "
            "this policy, and not what else it would do; a Q function of it, which decisions need, has to know. Estimate with "
            "methods=[is, wis, pdis, wpdis], or give a column with the probabilities of all actions of a Discrete space."
        )
    if weighed and isinstance(policy, FunctionOfObservations) and policy.is_certain:
        raise ConfigError(
            f"{', '.join(weighed)}: {policy.name} always takes one action of {policy.action_space}, and weights ask how "
            "probable each recorded action is to it. Say with how much noise it would be played (noise, in a decision "
            "estimate.noise: a standard deviation in units of the action), or estimate with methods=[fqe]."
        )
    if not config.explore and weighed and has_box(policy.action_space):
        raise ConfigError(
            f"{', '.join(weighed)}: no recorded action is ever the most likely one of {policy.action_space}. Set explore to "
            "true, or methods to [fqe]."
        )


def _check_behaviour(policy: TargetPolicy, behaviour: Policy | None) -> None:
    if behaviour is None or policy.network.squash or not behaviour.network.squash:
        return
    raise ConfigError(
        "The behaviour squashes its actions, and so never did what this policy does, which clips them to the bounds of their "
        "Box: no weights tell what comes of that. Name a behaviour whose network.squash is that of this one, or set methods "
        "to [fqe]."
    )


def _estimated(config: EstimateConfig, episodes: Trajectories) -> tuple[Interval, Interval, dict[str, Estimate]]:
    """(what was recorded, the same and what the Q function expects after it, what each method says)"""
    bounds = functools.partial(
        interval,
        groups=episodes.groups.number,
        resamples=config.resamples,
        confidence=config.confidence,
        seed=derive_seed(config.seed, "estimate_policy", "resamples"),
    )

    def mean_of(returns: np.ndarray) -> Interval:
        low, high = bounds(functools.partial(episodes.groups.means, returns))
        return Interval(value=float(returns.mean()), low=low, high=high)

    estimates: dict[str, Estimate] = {}
    with progress(len(config.methods), what="resample", unit="method") as bar:
        for name in config.methods:
            method = METHODS[name]
            low, high = bounds(functools.partial(method.estimate, episodes))
            size = method.size(episodes) if method.size else None
            estimates[name] = Estimate(
                value=method.value(episodes),
                low=low,
                high=high,
                effective_episodes=size.episodes if size else None,
                largest_weight=size.largest if size else None,
            )
            bar.update(1)
    return mean_of(episodes.returns), mean_of(episodes.continued), estimates
