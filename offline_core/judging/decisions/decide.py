"""Decide which of several policies may replace what runs today, from a log that none of them was chosen by."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import gymnasium as gym

from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import Dataset, open_committed, open_dataset
from offline_core.data.datasets.manifest import Operation, identity_of
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.decisions import diagnosis
from offline_core.judging.decisions.behaviour import examine, examine_recorded, model_of_behaviour
from offline_core.judging.decisions.config import BEHAVIOUR, DecisionConfig
from offline_core.judging.decisions.contenders import Contender, contenders_of
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
from offline_core.policies.manifest import fingerprint_of
from offline_core.runtime.stage import DATASET, VERSION, Argument, Made, output, stage

log = logging.getLogger(__name__)


@stage(
    "decide",
    version=2,
    after="estimate",
    arguments=(
        DATASET,
        Argument("candidates", "Checkpoints of the policies.", ["runs/policy/best"], "policies"),
        output("runs/decision", "Folder for the decision and both sides of the log.", is_option=True),
        VERSION,
    ),
    hint="Example: -s against=runs/champion -s risk=0.05.",
    run_name="decide on {dataset} among {candidates}, seed {config.seed}",
    short=(
        "against",
        "by",
        "risk",
    ),
)
def decide(
    config: DecisionConfig, *, dataset: str, candidates: Sequence[str], output: str, version: int | None = None
) -> Made[DecisionResult]:
    """Say from a log which of several policies may replace what runs today.

    Candidates are held against what runs today, on episodes that none of them learned from or was chosen by.

    One side of the log ranks the candidates, the other judges the first of them: the difference to what runs today on the
    same episodes, by wdr with cross-fitting, at a risk over all that are judged. What cannot be judged is refused.

    Arguments:
        dataset: URI of the log.
        candidates: URIs of checkpoints, or addresses of registered ones.
        output: folder of the decision: `result.json`, both sides of the log, and the model of the behaviour if it needs one.
        version: of the dataset, the latest if None.

    Raises:
        CheckpointError: A candidate cannot be read.
        ConfigError: A policy does not fit the data, or a guardrail its columns.
        DataError: The log is not what it has to be, or has too few episodes for two sides.
    """
    start = time.perf_counter()
    source = open_committed(dataset, version)
    contenders = contenders_of(candidates)
    today = None if config.against == BEHAVIOUR else contenders_of([config.against])[0]
    model = None if config.estimate.behaviour is None else contenders_of([config.estimate.behaviour])[0]
    config = _with_checkpoints(config, today, model)
    others = {"against": today, "behaviour": model}
    named = {name: None if each is None else each.manifest.fingerprint for name, each in others.items()}
    policies = [*contenders, *(each for each in others.values() if each is not None)]
    begun = yield StoredResult(
        DecisionResult,
        Location.of(output),
        [source.parent_entry, *(each.parent for each in policies)],
        fingerprint_of,
        outputs=lambda _: [each.uri for each in policies],
        config=_without_places(config),
        more={"policies": named},
        starts_itself=True,
    )
    _check(config, source, [*contenders, *([today] if today else [])], model)
    begun.start()
    result = _decided(config, source, contenders, today, begun.folder, start)
    log.info("%s", result.sentence)
    return result


def _decided(
    config: DecisionConfig,
    source: Dataset,
    contenders: Sequence[Contender],
    today: Contender | None,
    folder: Location,
    start: float,
) -> DecisionResult:
    halves = SplitConfig(held_out_fraction=config.judge_share, by=config.by, seed=config.seed)
    halving = Operation.of(decide.name, halves, source=source.manifest.fingerprint)
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
    best, first = ruling.first, judged.first
    warnings = [
        *diagnostics.about_history(source, history),
        *diagnostics.about_parts(first.begins_late),
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
        worth_testing=ruling.worth_testing,
        episodes_needed=ruling.episodes_needed,
        recorded=float(first.episodes.returns.mean()),
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
        horizon=first.horizon,
        reasons=refusals,
        warnings=warnings,
        seconds=time.perf_counter() - start,
        margin=config.margin,
        min_overlap=config.min_overlap,
    )


def _with_checkpoints(config: DecisionConfig, today: Contender | None, model: Contender | None) -> DecisionConfig:
    """With the checkpoints that addresses of the registry name now."""
    estimate = config.estimate if model is None else config.estimate.model_copy(update={"behaviour": model.uri})
    return config.model_copy(update={"against": BEHAVIOUR if today is None else today.uri, "estimate": estimate})


def _without_places(config: DecisionConfig) -> DecisionConfig:
    """What of it changes the result, but for policies: their fingerprints do."""
    estimate = config.estimate.model_copy(update={"behaviour": None})
    return config.model_copy(update={"against": BEHAVIOUR, "estimate": estimate})


def _check(config: DecisionConfig, source: Dataset, policies: Sequence[Contender], model: Contender | None) -> None:
    """Raise a ConfigError for policies that cannot be decided between on this log."""
    for each in policies:
        if each.policy.network.recurrent is not None:
            raise ConfigError(
                f"{each.uri} remembers earlier steps (network.recurrent), and the Q functions that a decision needs see single "
                "observations: leave it out, or estimate it by offline estimate with methods=[wpdis]."
            )
        estimate = config.estimate.model_copy(update={"methods": [*JUDGES]})
        check_policies(estimate, each.policy, None if model is None else model.policy, source)


def _about_sampling(contenders: Sequence[Contender], config: DecisionConfig) -> list[str]:
    if not config.estimate.explore:
        return []
    return [each for one in contenders for each in diagnostics.about_sampling(one.manifest, one.policy)]
