"""Decide which of several policies may replace what runs today, from a log that none of them was chosen by."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from offline_core.data.datasets.dataset import open_committed
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.store.location import Location
from offline_core.judging.decisions.config import BEHAVIOUR, DecisionConfig
from offline_core.judging.decisions.result import DecisionResult
from offline_core.judging.estimation.contenders import Contender, contenders_of, model_named
from offline_core.policies.manifest import fingerprint_of
from offline_core.policies.registry import count_moves, name_in_registry, names_in, parse_address
from offline_core.runtime.signing import key_id
from offline_core.runtime.stage import CANDIDATES, DATASET, VERSION, Argument, Made, output, stage

log = logging.getLogger(__name__)


@stage(
    "decide",
    version=9,
    after="estimate",
    arguments=(
        DATASET,
        Argument(
            "candidates",
            CANDIDATES,
            ["runs/policy/best"],
            "candidates",
        ),
        output("runs/decision", "Folder for the decision and both sides of the log.", is_option=True),
        VERSION,
    ),
    hint="Example: -s against=runs/champion -s risk=0.05.",
    run_name="decide on {dataset} among {candidates}, seed {config.seed}",
    short=("against", "registry", "by"),
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
        candidates: URIs of checkpoints, ONNX files or other datasets, whose behaviour is meant, addresses of registered
            policies, `rule:…`, `function:…` or `column:…`; see `Contender`.
        output: folder of the decision: `result.json`, both sides of the log, and the models of behaviours that it needs.
        version: of the dataset, the latest if None.

    Raises:
        CheckpointError: A candidate cannot be read.
        ConfigError: A policy does not fit the data, or a guardrail its columns.
        DataError: The log is not what it has to be, or has too few episodes for two sides.
    """
    start = time.perf_counter()
    source = open_committed(dataset, version)
    noise = config.estimate.noise
    contenders = contenders_of(candidates, source, noise=noise)
    today = None if config.against == BEHAVIOUR else contenders_of([config.against], source, noise=noise)[0]
    model = model_named(config.estimate.behaviour, source)
    config = _with_checkpoints(_with_registry(config, today), today, model)
    others = {"against": today, "behaviour": model}
    named = {name: None if contender is None else contender.fingerprint for name, contender in others.items()}
    policies = [*contenders, *(contender for contender in others.values() if contender is not None)]
    begun = yield StoredResult(
        DecisionResult,
        Location.of(output),
        [source.parent_entry, *(contender.parent for contender in policies)],
        fingerprint_of,
        outputs=lambda _: [contender.uri for contender in policies if contender.kind == "checkpoint"],
        config=_without_places(config),
        more={"policies": named} | ({} if (key := key_id()) is None else {"signed_by": key}),
        starts_itself=True,
        is_whole=lambda result: result.wrong_signature is None,
    )
    from offline_core.judging.decisions.work import check, decided  # here, for what is reused needs no Torch

    asked = [*contenders, *([today] if today else [])]
    check(config, source, {contender.uri: contender.policy for contender in asked}, model)
    begun.start()
    _say_if_new(config.registry)
    result = decided(config, source, contenders, today, begun.folder, start).signed()
    log.info("%s", result.sentence)
    return result


def _with_registry(config: DecisionConfig, today: Contender | None) -> DecisionConfig:
    """The config with the name in a registry that the decision is for, if it is known."""
    if config.registry is not None:
        return config.model_copy(update={"registry": name_in_registry(config.registry).uri})
    address = parse_address(config.against) if today is not None and today.kind == "checkpoint" else None
    return config if address is None else config.model_copy(update={"registry": address.entry.uri})


def _say_if_new(registry: str | None) -> None:
    """Warn of a name that no policy was promoted to, which is the first decision for it, or a mistake."""
    if registry is None or count_moves(entry := Location.of(registry)):
        return
    names = names_in(entry.parent)
    there = f"the registry {entry.parent.uri} has {', '.join(names)}" if names else f"{entry.parent.uri} is no registry yet"
    log.warning("There is no policy %s: %s. A promotion by this decision will create it.", registry, there)


def _with_checkpoints(config: DecisionConfig, today: Contender | None, model: Contender | None) -> DecisionConfig:
    """The config with the checkpoints that addresses of the registry name now."""
    estimate = config.estimate if model is None else config.estimate.model_copy(update={"behaviour": model.uri})
    return config.model_copy(update={"against": BEHAVIOUR if today is None else today.uri, "estimate": estimate})


def _without_places(config: DecisionConfig) -> DecisionConfig:
    """The config with all that changes the result, but without the policies, as their fingerprints stand for them."""
    estimate = config.estimate.model_copy(update={"behaviour": None})
    return config.model_copy(update={"against": BEHAVIOUR, "estimate": estimate})
