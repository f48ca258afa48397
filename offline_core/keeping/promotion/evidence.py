"""What a decision says for a promotion: read from its folder, with its checksum verified."""

from __future__ import annotations

import json
from typing import NamedTuple

from pydantic import ValidationError

from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.store.json_files import without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import PromotionError
from offline_core.judging.decisions.config import BEHAVIOUR
from offline_core.judging.decisions.result import DecisionResult
from offline_core.policies.registry import History, Move, PromotionEvidence
from offline_core.runtime.parameter_errors import problems


class StoredDecision(NamedTuple):
    """A stored decision."""

    result: DecisionResult
    evidence: PromotionEvidence


def read_decision(uri: str) -> StoredDecision | None:
    """The decision in a folder; None if the folder has no result.

    Raises:
        CorruptFileError: It is not what was written.
        PromotionError: It is the result of another stage.
    """
    file = Location.of(uri).inside(RESULT_FILE)
    if not file.is_file():
        return None
    inside = without_checksum(file.read(), file.uri, is_required=True)
    try:
        values = json.loads(inside)
        result, identity = DecisionResult.model_validate(values["result"]), str(values["identity"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = problems(error) if isinstance(error, ValidationError) else error
        raise PromotionError(
            f"{file.uri} is no decision ({what}). Give the folder that 'offline decide' wrote, or a checkpoint with "
            "-s override='why'.",
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


def check_decision(decision: StoredDecision, history: History, alias: str) -> None:
    """Check that a decision moves an alias without an override.

    Raises:
        PromotionError: The key did not sign it, its verdict is another one, it was made for another registry, it moved the
            alias before, or it compared with another policy than the alias names.
    """
    result, evidence = decision
    where, present = f"{alias} of {history.entry.uri}", history.aliases.get(alias)
    otherwise = "or say why it is moved all the same: -s override='why'."
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
            f"'offline decide' with -s {so}, {otherwise}",
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
