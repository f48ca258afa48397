"""Move an alias to a policy that a decision promotes, or that an override names."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import ValidationError

from offline_core.data.datasets.folder_kind import kind_of_result
from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.episodes import space_from_json
from offline_core.data.inputs.input_columns import CATEGORIES, COLUMNS
from offline_core.data.store.json_files import without_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.partial_files import remove_partial_files_on_disk
from offline_core.errors import CheckpointError, PromotionError
from offline_core.judging.decisions.config import BEHAVIOUR
from offline_core.judging.decisions.result import DecisionResult
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.policies.manifest import PolicyManifest, copy_policy, find_policy, registered_policy
from offline_core.policies.registry import (
    CHECKPOINTS,
    History,
    Move,
    PromotionEvidence,
    commit_move,
    name_in_registry,
    read_history,
)
from offline_core.runtime.parameter_errors import problems
from offline_core.runtime.provenance import this_user
from offline_core.runtime.stage import Argument, stage

log = logging.getLogger(__name__)


class StoredDecision(NamedTuple):
    """A stored decision."""

    result: DecisionResult
    evidence: PromotionEvidence


@stage(
    "promote",
    after="decide",
    arguments=(
        Argument("registry", "Folder of the registry and name of the policy in it.", "runs/registry/policy", "output"),
        Argument(
            "source",
            "Folder of the decision; with override=… also the checkpoint of a policy.",
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
        PromotionError: The decision does not allow it, its checkpoint has changed since, the alias was moved meanwhile, or the
            name is that of a policy of other spaces, columns or labels.
        CheckpointError: There is no policy, or it is damaged.
        CorruptFileError: The decision or the history is not what was written.
        ConfigError: The name is none, or a registry was given in its place.
    """
    entry = name_in_registry(registry)
    remove_partial_files_on_disk(entry)
    history = read_history(entry)
    decision = _decision(config, source)
    uri, manifest = find_policy(source if decision is None else decision.result.checkpoint)
    if decision is not None and decision.result.fingerprint != manifest.fingerprint:
        raise PromotionError(
            f"{uri} has changed since the decision in {source}: it is policy {manifest.fingerprint} now, and was "
            f"{decision.result.fingerprint}. Decide again.",
            uri=uri,
        )
    present = history.aliases.get(config.alias)
    if present is not None and present.fingerprint == manifest.fingerprint:
        log.info("Nothing is moved: %s of %s names that policy already", config.alias, entry.uri)
        return result_of(history, present, reused=True)
    if decision is not None and config.override is None:
        _check(decision, history, config.alias)
    _check_alike(manifest, history, config.alias)
    move = Move(
        kind="promote" if config.override is None else "assign",
        alias=config.alias,
        checkpoint=f"{CHECKPOINTS}/{copy_policy(uri, manifest, entry.child(CHECKPOINTS))}",
        fingerprint=manifest.fingerprint,
        source=Location.of(uri).uri,
        previous=None if present is None else present.checkpoint,
        evidence=None if decision is None else decision.evidence,
        reason=config.override,
        moved_by=config.moved_by or this_user(),
    )
    return result_of(history, commit_move(history, move))


def result_of(history: History, move: Move, *, reused: bool = False) -> PromotionResult:
    """What an alias names after a move. Moves that the key did not sign are told."""
    for unsigned in history.unsigned:
        log.warning("%s Look with 'offline registry %s'.", unsigned, history.entry.uri)
    result = PromotionResult(
        checkpoint=history.checkpoint(move).uri,
        address=f"{history.entry.uri}@{move.alias}",
        move=move,
        explore=None if (evidence := history.decided_by(move)) is None else evidence.explore,
        reused=reused,
    )
    if not reused:
        log.info("Moved %s of %s: %s", move.alias, history.entry.uri, move.because)
    return result


def _decision(config: PromotionConfig, source: str) -> StoredDecision | None:
    """The decision in a folder; None: the source is a checkpoint, which an override names."""
    decision = read_decision(source)
    if decision is not None and (adopt := decision.result.adopt) is not None:
        raise PromotionError(
            f"Nothing is moved: the decision in {source} is for {decision.result.checkpoint}. {adopt}",
            uri=source,
        )
    if decision is None and config.override is None:
        raise PromotionError(
            f"There is no decision in {source}. An alias moves by the folder of a decision that promotes, or by a checkpoint "
            "with override='why'.",
            uri=source,
        )
    return decision


def read_decision(uri: str) -> StoredDecision | None:
    """The decision in a folder; None if the folder has no result, or that of a training and the like.

    Raises:
        CorruptFileError: It is not what was written.
        PromotionError: It is what no policy comes of.
    """
    file = Location.of(uri).inside(RESULT_FILE)
    if not file.is_file():
        return None
    inside = without_checksum(file.read(), file.uri, is_required=True)
    try:
        values = json.loads(inside)
        if kind_of_result(values["result"]) not in ("decision", None):
            return None
        result, identity = DecisionResult.model_validate(values["result"]), str(values["identity"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = problems(error) if isinstance(error, ValidationError) else error
        raise PromotionError(
            f"{file.uri} is no decision ({what}). Give the folder that 'offline decide' wrote, or a checkpoint with "
            "override='why'.",
            uri=file.uri,
        ) from error
    evidence = PromotionEvidence(
        decision=file.parent.uri,
        identity=identity,
        verdict=result.verdict,
        sentence=result.sentence,
        against=result.against,
        explore=result.explore,
        signature=result.signature,
    )
    return StoredDecision(result, evidence)


def _check(decision: StoredDecision, history: History, alias: str) -> None:
    """Check that a decision moves an alias without an override.

    Raises:
        PromotionError: The key did not sign it, its verdict is another one, it was made for another registry, it moved the
            alias before, or it compared with another policy than the alias names.
    """
    result, evidence = decision
    where, present = f"{alias} of {history.entry.uri}", history.aliases.get(alias)
    otherwise = "or say why it is moved all the same: override='why'."
    if (why := result.wrong_signature) is not None:
        raise PromotionError(
            f"{where} is not moved: the decision in {evidence.decision} {why}. Decide again with the key, {otherwise}",
            uri=history.entry.uri,
        )
    if result.verdict != "promote":
        raise PromotionError(
            f"{where} is not moved: the verdict of {evidence.decision} is {result.verdict}. {result.sentence} Promote by a "
            f"decision whose verdict is promote, {otherwise}",
            uri=history.entry.uri,
        )
    if result.registry != history.entry.uri:
        made_for = "for no registry" if result.registry is None else f"for {result.registry}"
        so = f"registry={history.entry.uri}" if present is None else f"against={history.entry.uri}@{alias}"
        raise PromotionError(
            f"{where} is not moved: the decision in {evidence.decision} was made {made_for}. Decide for this one, by "
            f"'offline decide' with {so}, {otherwise}",
            uri=history.entry.uri,
        )
    if present is None:
        return
    if used := _used(evidence, history, alias):
        raise PromotionError(
            f"{where} is not moved: this decision moved it before ({used}), and it was moved on since: {present}. Decide again "
            f"on more episodes, {otherwise}",
            uri=history.entry.uri,
        )
    if not _is_of(result, history, present):
        what = "what the log recorded" if result.against == BEHAVIOUR else result.against
        raise PromotionError(
            f"{where} is not moved: the decision compared with {what}, and now it names {history.checkpoint(present).uri} "
            f"({present}). Decide against {history.entry.uri}@{alias}, {otherwise}",
            uri=history.entry.uri,
        )


def _check_alike(manifest: PolicyManifest, history: History, alias: str) -> None:
    """Check that a policy sees and does what the one does that it replaces, or stands beside if the alias is new.

    Of the same columns it may know other categories, as a tariff that is new, and choose among others.

    Raises:
        PromotionError: Its spaces have other sizes, or it learned from other columns or labels.
    """
    if not history.moves:
        return
    before = history.aliases.get(alias, history.moves[-1])
    try:
        other = registered_policy(history.entry, before)
    except CheckpointError:  # it is gone, and promoting is what mends that
        return
    from offline_core.policies.policy import spaces_fit  # it needs Torch

    own, theirs = (
        {"observation": space_from_json(each.observation_space), "action": space_from_json(each.action_space)}
        for each in (manifest, other)
    )
    layout, explained = manifest.network.image_layout, set[str]()
    told = list[str]()
    if (seen := manifest.input_columns) is not None and (before_seen := other.input_columns) is not None:
        if differences := seen.differences(before_seen, only=COLUMNS):
            told.append(f"other columns: {differences}")
        elif differences := seen.differences(before_seen, only=CATEGORIES):
            if not _may_replace(seen.labels, before_seen.labels):
                told.append(f"other labels: {differences}")
            else:
                log.warning("Policy %s knows other categories, or chooses among others: %s.", manifest.fingerprint, differences)
            explained |= {"observation"} if seen.steps.encode != before_seen.steps.encode else set()
            explained |= {"action"} if seen.labels != before_seen.labels else set()
    for what in own:
        is_explained = what in explained and type(own[what]) is type(theirs[what])
        if not (is_explained or spaces_fit(own[what], theirs[what], layout)):
            told.append(f"the {what} space {own[what]} in place of {theirs[what]}")
    if told:
        raise PromotionError(
            f"{alias} of {history.entry.uri} is not moved: policy {manifest.fingerprint} has {' and '.join(told)}, "
            f"and what acts by {before.alias} ({before.fingerprint}) would do something else. Promote it under another name, "
            f"as {history.entry.uri}-2.",
            uri=history.entry.uri,
        )


def _may_replace(labels: Sequence[str | float] | None, before: Sequence[str | float] | None) -> bool:
    """Whether choices may be those of before with others added or gone, or numbers that data were cut into anew."""
    if labels is None or before is None:
        return labels == before
    is_cut_anew = len(labels) == len(before) and not any(isinstance(label, str) for label in (*labels, *before))
    return is_cut_anew or not {*labels}.isdisjoint(before)


def _used(evidence: PromotionEvidence, history: History, alias: str) -> Move | None:
    """The move that the same decision made before. What it was decided on is not signed, and the decision may be."""
    for move in history.moves:
        made = move.evidence if move.alias == alias and move.kind == "promote" else None
        if made is not None and (made.identity == evidence.identity or (made.signature or "") == evidence.signature):
            return move
    return None


def _is_of(result: DecisionResult, history: History, present: Move) -> bool:
    """Whether the decision compared with what the alias names. Folders of the registry are named by their content."""
    if result.against == BEHAVIOUR:
        return False
    if result.against_fingerprint is not None:
        return result.against_fingerprint == present.fingerprint
    return Location.of(result.against).uri == history.checkpoint(present).uri
