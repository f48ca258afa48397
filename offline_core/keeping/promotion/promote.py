"""Move an alias to a policy that a decision promotes, or that an override names."""

from __future__ import annotations

import logging
from typing import NamedTuple

from offline_core.data.store.location import Location
from offline_core.data.store.partial_files import remove_partial_files_on_disk
from offline_core.errors import PromotionError
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.keeping.promotion.evidence import StoredDecision, check_decision, read_decision
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.policies.manifest import copy_policy, find_policy
from offline_core.policies.registry import CHECKPOINTS, History, Move, commit_move, entry_of, read_history
from offline_core.runtime.provenance import this_user
from offline_core.runtime.stage import Argument, stage

log = logging.getLogger(__name__)


@stage(
    "promote",
    after="decide",
    arguments=(
        Argument("registry", "Folder of the registry and name of the policy in it.", "runs/registry/policy", "output"),
        Argument(
            "source",
            "Folder of the decision; with -s override=… also the checkpoint of a policy.",
            "runs/decision",
            "decision",
        ),
    ),
    run_name="promote {source} to {registry}@{config.alias}",
)
def promote(config: PromotionConfig, *, registry: str, source: str) -> PromotionResult:
    """Move an alias of the registry, champion by default, to the policy that a decision promotes.

    The checkpoint is copied into the registry, and the alias names it by one exclusive create. If the alias names that policy
    already, nothing is moved.

    Arguments:
        registry: folder and name, such as `runs/registry/hvac`; created if need be.
        source: folder of a decision. With `config.override` also a checkpoint, its address, or a decision that refuses.

    Raises:
        PromotionError: The decision does not allow it, its checkpoint has changed since, or the alias was moved meanwhile.
        CheckpointError: There is no policy, or it is damaged.
        CorruptFileError: The decision or the history is not what was written.
        ConfigError: The name is none.
    """
    entry = entry_of(registry)
    remove_partial_files_on_disk(entry)
    history = read_history(entry)
    chosen = _chosen(config, source)
    uri, manifest = find_policy(chosen.uri)
    if chosen.fingerprint not in (None, manifest.fingerprint):
        raise PromotionError(
            f"{uri} has changed since the decision in {source}: it is policy {manifest.fingerprint} now, and was "
            f"{chosen.fingerprint}. Decide again.",
            uri=uri,
        )
    present = history.aliases.get(config.alias)
    if present is not None and present.fingerprint == manifest.fingerprint:
        log.info("Nothing is moved: %s of %s names that policy already", config.alias, entry.uri)
        return result_of(history, present, reused=True)
    if chosen.decision is not None and config.override is None:
        check_decision(chosen.decision, history, config.alias)
    move = Move(
        kind="promote" if config.override is None else "assign",
        alias=config.alias,
        checkpoint=f"{CHECKPOINTS}/{copy_policy(uri, manifest, entry.child(CHECKPOINTS))}",
        fingerprint=manifest.fingerprint,
        source=Location.of(uri).uri,
        previous=None if present is None else present.checkpoint,
        evidence=None if chosen.decision is None else chosen.decision.evidence,
        reason=config.override,
        moved_by=config.moved_by or this_user(),
    )
    return result_of(history, commit_move(history, move))


def result_of(history: History, move: Move, *, reused: bool = False) -> PromotionResult:
    """What an alias names after a move. Moves that the key did not sign are told."""
    for unsigned in history.unsigned:
        log.warning("%s Look with 'offline registry %s'.", unsigned, history.entry.uri)
    result = PromotionResult(
        checkpoint=history.checkpoint(move).uri, address=f"{history.entry.uri}@{move.alias}", move=move, reused=reused
    )
    if not reused:
        log.info("Moved %s of %s: %s", move.alias, history.entry.uri, move.because)
    return result


class _Chosen(NamedTuple):
    uri: str
    fingerprint: str | None
    """That the checkpoint has to have; None: any."""
    decision: StoredDecision | None


def _chosen(config: PromotionConfig, source: str) -> _Chosen:
    if (decision := read_decision(source)) is not None:
        if (adopt := decision.result.adopt) is not None:
            raise PromotionError(
                f"Nothing is moved: the decision in {source} is for {decision.result.checkpoint}. "
                f"{adopt[0].upper()}{adopt[1:]}",
                uri=source,
            )
        return _Chosen(decision.result.checkpoint, decision.result.fingerprint, decision)
    if config.override is None:
        raise PromotionError(
            f"There is no decision in {source}. An alias moves by the folder of a decision that promotes, or by a checkpoint "
            "with -s override='why'.",
            uri=source,
        )
    return _Chosen(source, None, None)
