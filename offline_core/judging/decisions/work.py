"""The work of a decision: the log is cut in two sides, one ranks the candidates, the other judges the first of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.decisions import diagnosis
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.drift import about_drift, ends_of, in_words, judging_in
from offline_core.judging.decisions.groups import groups_of
from offline_core.judging.decisions.judging import JUDGES, candidate_of, held_against, judge, scored, unjudged
from offline_core.judging.decisions.result import JUDGE, SELECT, DecisionResult
from offline_core.judging.decisions.sides import Side, behaviour_of, is_recorded, paid, sides_of
from offline_core.judging.decisions.verdict import rule
from offline_core.judging.estimation import diagnostics
from offline_core.judging.estimation.behaviour import examine
from offline_core.judging.estimation.clones import with_clones
from offline_core.judging.estimation.contenders import Contender
from offline_core.judging.estimation.estimate import check_policies
from offline_core.judging.estimation.logged import step_batches
from offline_core.judging.estimation.observations import Observations
from offline_core.judging.estimation.result import reward_name
from offline_core.judging.estimation.target import TargetPolicy, distribution_inputs
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.lineage import lineage
from offline_core.policies.policy import Policy


def check(config: DecisionConfig, source: Dataset, policies: Mapping[str, TargetPolicy], model: Contender | None) -> None:
    """Raise a ConfigError for policies that cannot be decided between on this log.

    Arguments:
        policies: trained or not, by what an error calls them.
    """
    estimate = config.estimate.model_copy(update={"methods": [*JUDGES]})
    behaviour = None if model is None else model.policy
    assert isinstance(behaviour, Policy | None)
    for name, policy in policies.items():
        if policy.network.recurrent is not None:
            raise ConfigError(
                f"{name} remembers earlier steps (network.recurrent), and the Q functions that a decision needs see single "
                "observations: leave it out, or estimate it by offline estimate with methods=[wpdis]."
            )
        check_policies(estimate, policy, behaviour, source)


def decided(
    config: DecisionConfig,
    source: Dataset,
    contenders: Sequence[Contender],
    today: Contender | None,
    folder: Location,
    start: float,
) -> DecisionResult:
    """Do the work of `decide`, and return its result.

    Arguments:
        folder: of the decision.
        start: `time.perf_counter()` when it began.
    """
    selecting, judging = sides_of(config, source, folder)
    selecting_side, judging_side = (open_dataset(ref.uri, ref.version) for ref in (selecting, judging))
    for guardrail in config.guardrails:
        paid(selecting_side, guardrail)  # what is wrong is said before anything is fitted
    check_answers([*contenders, *([today] if today else [])], source)
    in_time = source.in_time()
    drifting = [*about_drift(source, in_time)]
    groups, parts = (
        groups_of(judging_side, config.group, log=str(source.ref)),
        judging_in(source, judging_side, in_time) if drifting else {},
    )
    history = lineage(source.location.uri, source.manifest.version)
    taught = {contender.uri: [*diagnosis.about_learning(contender, history, judging_side)] for contender in contenders}
    cloned = partial(with_clones, folder=folder, by=config.by, stage="decide", updates=config.clone_updates, seed=config.seed)
    fair = cloned([contender for contender in contenders if not taught[contender.uri]])
    if today is not None:
        [today] = cloned([today])
    config = config.model_copy(update={"finalists": max(1, min(config.finalists, len(fair)))})  # they share the risk
    recorded = is_recorded(config, source)
    model = behaviour_of(config, source, folder) if fair else config.estimate.behaviour
    behaviour = None if model is None else load_policy(model)
    acting = None if recorded else behaviour, None if today is None else today.policy
    sides = [Side(name, log, config, history, *acting) for name, log in ((SELECT, selecting_side), (JUDGE, judging_side))]
    examined = None
    if fair:
        acted = fair[0].policy if behaviour is None else behaviour
        examined = examine(acted, sides[1].dataset, is_model=behaviour is not None, recorded=recorded)
    if fair:
        judged = judge(sides[1], fair, scored(held_against(sides[0], fair)), groups, parts)
    else:
        judged = unjudged(sides[1], contenders[0])
    if judged.horizon == 1:  # a single step has no discount, and is not to be told with one
        config = config.model_copy(update={"estimate": config.estimate.model_copy(update={"gamma": 1.0})})
    refusals = judged.refusals
    if examined is not None:
        refusals = [*diagnosis.about_behaviour(examined, recorded=recorded), *refusals]
    advantage = []
    if today is not None:
        why_not, seen = [*today.reasons], [*diagnosis.about_learning(today, history, judging_side)]
        if today.recording is None:
            advantage = [f"{config.against}, which runs today, has an advantage over the candidates: {why}" for why in seen]
        else:
            why_not += seen
        refusals += diagnosis.about_today(config, why_not)
    candidates = judged.candidates + [
        candidate_of(contender, reasons=why) for contender in contenders if (why := taught[contender.uri])
    ]
    against_clone = today is not None and today.clone is not None
    ruling = rule(candidates, config, episodes=source.ref.episodes, refusals=refusals, against_clone=against_clone)
    best = ruling.first
    ends = ends_of(source, in_time) if drifting else []
    warnings = [
        *diagnostics.about_history(source, history),
        *diagnostics.about_parts(judged.begins_late),
        *(
            told
            for contender in contenders
            if config.estimate.explore
            for told in diagnostics.about_sampling(contender.manifest)
        ),
        *(
            told
            for contender in contenders
            if contender.uri == best.checkpoint and contender.lineage is None
            for told in diagnostics.about_origin(contender, history, judging_side)
        ),
        *(told for contender in (*fair, *([today] if today else [])) for told in diagnostics.about_clone(contender)),
        *diagnostics.about_noise(config.estimate.noise, [*contenders, *([today] if today else [])]),
        *(
            f"{contender.name} is {config.against} itself, which runs today, so it cannot be better."
            for contender in contenders
            if today is not None and contender.fingerprint == today.fingerprint
        ),
        *advantage,
        *diagnosis.about_tail(best),
        *diagnosis.about_groups(best, ruling.verdict),
        *drifting,
        *in_words(ends, best, config),
    ]
    return DecisionResult(
        uri=folder.uri,
        verdict=ruling.verdict,
        sentence=ruling.sentence,
        checkpoint=best.checkpoint,
        fingerprint=best.fingerprint,
        against=config.against,
        against_fingerprint=None if today is None else today.fingerprint,
        registry=config.registry,
        worth_testing=ruling.worth_testing,
        episodes_needed=ruling.episodes_needed,
        recorded=judged.recorded,
        candidates=ruling.candidates,
        dataset=source.ref,
        selecting=selecting,
        judging=judging,
        behaviour=None if recorded else model,
        calibration=[] if recorded or examined is None else examined.calibration,
        calibration_error=None if recorded or examined is None else examined.error,
        risk=config.risk,
        confidence=config.estimate.confidence,
        gamma=config.estimate.gamma,
        explore=config.estimate.explore,
        reward=reward_name(history),
        horizon=judged.horizon,
        reasons=refusals,
        warnings=warnings,
        seconds=time.perf_counter() - start,
        parts=ends,
        margin=config.margin,
        min_overlap=config.min_overlap,
    )


def check_answers(contenders: Sequence[Contender], log: Dataset) -> None:
    """Ask the rules, functions and files among the policies at each step of the log, before anything is fitted.

    Raises:
        ConfigError: A policy fails, or does not answer as it has to.
    """
    stated = [contender for contender in contenders if contender.kind not in ("checkpoint", "behaviour")]
    if not stated:
        return
    policies, is_first = [contender.policy for contender in stated], True
    with contextlib.closing(step_batches(log, policies, by_column=False, needs_next_obs=False)) as batches:
        for batch in batches:
            observations = Observations(batch, policies[0].observation_space)
            for contender, policy in zip(stated, policies, strict=True):
                said = distribution_inputs(policy, observations)
                if is_first and not torch.equal(said, distribution_inputs(policy, observations)):
                    raise ConfigError(
                        f"The candidate {contender.name} answers otherwise if it is asked the same again: give the "
                        "probabilities of all actions (Discrete), or means and standard deviations (Box), instead of what is "
                        "drawn by them."
                    )
            is_first = False
