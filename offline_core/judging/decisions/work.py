"""The work of a decision: the log is cut in two sides, one ranks the candidates, the other judges the first of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import gymnasium as gym

from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.manifest import Operation, identity_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.decisions import diagnosis
from offline_core.judging.decisions.behaviour import examine, examine_recorded, model_of_behaviour
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.contenders import Contender
from offline_core.judging.decisions.evidence import Side, paid
from offline_core.judging.decisions.judging import JUDGES, judge, select
from offline_core.judging.decisions.result import MODEL, SIDES, DecisionResult
from offline_core.judging.decisions.verdict import rule
from offline_core.judging.estimation import diagnostics
from offline_core.judging.estimation.estimate import check_policies
from offline_core.judging.estimation.logged import has_probabilities
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.encoder import leaf_spaces
from offline_core.policies.lineage import lineage


def check(config: DecisionConfig, source: Dataset, policies: Sequence[Contender], model: Contender | None) -> None:
    """Raise a ConfigError for policies that cannot be decided between on this log."""
    for each in policies:
        if each.policy.network.recurrent is not None:
            raise ConfigError(
                f"{each.uri} remembers earlier steps (network.recurrent), and the Q functions that a decision needs see single "
                "observations: leave it out, or estimate it by offline estimate with methods=[wpdis]."
            )
        estimate = config.estimate.model_copy(update={"methods": [*JUDGES]})
        check_policies(estimate, each.policy, None if model is None else model.policy, source)


def decided(
    config: DecisionConfig,
    source: Dataset,
    contenders: Sequence[Contender],
    today: Contender | None,
    folder: Location,
    start: float,
) -> DecisionResult:
    """Return what `decide` returns.

    Arguments:
        folder: of the decision.
        start: `time.perf_counter()` when it began.
    """
    halves = SplitConfig(held_out_fraction=config.judge_share, by=config.by, seed=config.seed)
    halving = Operation.of("decide", halves, source=source.manifest.fingerprint)
    parts = folder.child(f"{SIDES}/{identity_of(halving, [])}").uri
    parted = split(halves, dataset=source.location.uri, version=source.manifest.version, output=parts)
    selecting, judging = parted.train, parted.held_out
    for guardrail in config.guardrails:
        paid(open_dataset(selecting.uri, selecting.version), guardrail)  # what is wrong is said before anything is fitted
    recorded = config.estimate.behaviour is None and has_probabilities(open_dataset(judging.uri, judging.version))
    model, updates = config.estimate.behaviour, config.examine_updates if recorded else config.clone_updates
    if model is None and updates:
        model = model_of_behaviour(selecting, judging, folder.child(MODEL).uri, updates=updates, seed=config.seed)
    behaviour = None if model is None else load_policy(model)
    history = lineage(source.location.uri, source.manifest.version)
    acting = None if recorded else behaviour, None if today is None else today.policy
    sides = [Side.of(*each, config, history, *acting) for each in (("select", selecting), ("judge", judging))]
    if behaviour is None:
        examined = examine_recorded(sides[1].dataset, contenders[0].policy)
    else:
        examined = examine(behaviour, sides[1].dataset, recorded=recorded)
    judged = judge(sides[1], select(sides[0], contenders))
    listed = not any(isinstance(leaf, gym.spaces.Box) for leaf in leaf_spaces(contenders[0].policy.action_space))
    refusals = [*diagnosis.about_behaviour(examined, listed=listed, recorded=recorded), *judged.refusals]
    ruling = rule(judged.candidates, config, episodes=source.ref.episodes, refusals=refusals)
    best = ruling.first
    warnings = [
        *diagnostics.about_history(source, history),
        *diagnostics.about_parts(judged.begins_late),
        *_about_sampling(contenders, config),
        *diagnosis.about_drift(source),
    ]
    return DecisionResult(
        uri=folder.uri,
        verdict=ruling.verdict,
        sentence=ruling.sentence,
        checkpoint=best.checkpoint,
        fingerprint=best.fingerprint,
        against=config.against,
        against_fingerprint=None if today is None else today.manifest.fingerprint,
        registry=config.registry,
        worth_testing=ruling.worth_testing,
        episodes_needed=ruling.episodes_needed,
        recorded=judged.recorded,
        candidates=ruling.candidates,
        dataset=source.ref,
        selecting=selecting,
        judging=judging,
        behaviour=None if recorded else model,
        calibration=[] if recorded else examined.calibration,
        calibration_error=None if recorded else examined.error,
        risk=config.risk,
        confidence=config.estimate.confidence,
        gamma=config.estimate.gamma,
        horizon=judged.horizon,
        reasons=refusals,
        warnings=warnings,
        seconds=time.perf_counter() - start,
        margin=config.margin,
        min_overlap=config.min_overlap,
    )


def _about_sampling(contenders: Sequence[Contender], config: DecisionConfig) -> list[str]:
    if not config.estimate.explore:
        return []
    return [each for one in contenders for each in diagnostics.about_sampling(one.manifest, one.policy)]
