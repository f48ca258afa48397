"""The stages that say which policy runs, as users call them: see `stages`.

decision = offline.decide("runs/log", ["runs/a/best", "runs/b/best"], output="runs/decision")
made = offline.promote(decision, registry="runs/registry/hvac")
policy = offline.load_policy("runs/registry/hvac@champion")
offline.rollback("runs/registry/hvac")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from offline_core.arguments import Data, Given, Path, Trained, checkpoint_of, checkpoints_of, config_of, place_of

if TYPE_CHECKING:
    from offline_core.judging.decisions.config import DecisionConfig
    from offline_core.judging.decisions.result import DecisionResult
    from offline_core.keeping.promotion.config import PromotionConfig, RollbackConfig
    from offline_core.keeping.promotion.result import PromotionResult
    from offline_core.policies.registry.history import History


def decide(
    data: Data,
    candidates: Trained | Sequence[Trained],
    /,
    *,
    output: Path,
    against: Trained | None = None,
    config: Given[DecisionConfig] = None,
    **parameters: Any,
) -> DecisionResult:
    """Say from a log which of several policies may replace what runs today: promote, test, collect, keep or refused.

    Arguments:
        candidates: policies; of a sweep the best one of each setting.
        output: folder of the decision.
        against: the policy that runs today; None: what the log recorded.
        parameters: fields of `DecisionConfig`.
    """
    from offline_core.judging.decisions.config import DecisionConfig
    from offline_core.judging.decisions.decide import decide

    if against is not None:
        parameters["against"] = checkpoint_of(against)
    parsed, (uri, version) = config_of(DecisionConfig, config, parameters), place_of(data)
    return decide(parsed, dataset=uri, candidates=checkpoints_of(candidates), version=version, output=os.fspath(output))


def promote(source: Trained, /, *, registry: Path, config: Given[PromotionConfig] = None, **parameters: Any) -> PromotionResult:
    """Move an alias of the registry, `champion` by default, to the policy that a decision promotes.

    Arguments:
        source: a decision, or its folder; with `override`, which says why, also a policy.
        registry: folder and name, such as `runs/registry/hvac`; stages and `load_policy` then take
            `runs/registry/hvac@champion` as a policy.
        parameters: fields of `PromotionConfig`.

    Raises:
        PromotionError: the decision does not allow it, or the alias was moved meanwhile.
    """
    from offline_core.judging.decisions.result import DecisionResult
    from offline_core.keeping.promotion.config import PromotionConfig
    from offline_core.keeping.promotion.promote import promote_policy

    place = source.uri if isinstance(source, DecisionResult) else checkpoint_of(source)
    return promote_policy(config_of(PromotionConfig, config, parameters), registry=os.fspath(registry), source=place)


def rollback(registry: Path, /, *, config: Given[RollbackConfig] = None, **parameters: Any) -> PromotionResult:
    """Move an alias of the registry back to the policy that it named before.

    Arguments:
        registry: folder and name, such as `runs/registry/hvac`.
        parameters: fields of `RollbackConfig`.

    Raises:
        PromotionError: there is nothing to go back to, or the alias was moved meanwhile.
    """
    from offline_core.keeping.promotion.config import RollbackConfig
    from offline_core.keeping.promotion.rollback import rollback_policy

    return rollback_policy(config_of(RollbackConfig, config, parameters), registry=os.fspath(registry))


def read_registry(path: Path, /) -> list[History]:
    """The names in a registry, each with its `aliases` and its `moves`; of one name, `runs/registry/hvac`, only that.

    Raises:
        CorruptFileError: a move is missing or damaged.
    """
    from offline_core.policies.registry.address import read_registry

    return read_registry(os.fspath(path))
