"""Move an alias back to the policy that it named before."""

from __future__ import annotations

from offline_core.data.store.partial_files import remove_partial_files_on_disk
from offline_core.errors import PromotionError, StorageError, StorageUnavailableError
from offline_core.keeping.promotion.config import RollbackConfig
from offline_core.keeping.promotion.promote import result_of
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.policies.manifest import fingerprint_of
from offline_core.policies.registry import Move, commit_move, name_in_registry, read_history
from offline_core.runtime.provenance import this_user
from offline_core.runtime.stage import Argument, stage


@stage(
    "rollback",
    after="promote",
    arguments=(Argument("registry", "Folder of the registry and name of the policy in it.", "runs/registry/policy"),),
    run_name="rollback {registry}@{config.alias}",
)
def rollback(config: RollbackConfig, *, registry: str) -> PromotionResult:
    """Move an alias of the registry back to the policy that it named before.

    That is itself a move in the history. A second rollback goes one policy further back, and never forth to one that was
    rolled back.

    Arguments:
        registry: folder and name, such as `runs/registry/hvac`.

    Raises:
        PromotionError: There is no such alias, nothing before, that policy is damaged, or the alias was moved meanwhile.
        CorruptFileError: The history is not what was written.
        StorageError: The storage does not answer, so that it is not known whether the alias has moved.
        ConfigError: The name is none.
    """
    entry = name_in_registry(registry)
    remove_partial_files_on_disk(entry)
    history = read_history(entry)
    where, present = f"{config.alias} of {entry.uri}", history.aliases.get(config.alias)
    if present is None:
        known = f"there are {', '.join(history.aliases)}" if history.moves else "nothing was promoted there yet"
        raise PromotionError(f"{where} is not rolled back: there is no such alias; {known}.", uri=entry.uri)
    if (target := history.before(config.alias)) is None:
        raise PromotionError(
            f"{where} is not rolled back: it named no policy before the one that it names. Promote another one instead.",
            uri=entry.uri,
        )
    uri = history.checkpoint(target).uri
    if (found := fingerprint_of(uri)) != target.fingerprint:
        raise PromotionError(
            f"{where} is not rolled back: {uri} is {'missing or damaged' if found is None else f'policy {found} now'}, and was "
            f"{target.fingerprint}. Restore the folder from a copy, or promote another policy.",
            uri=uri,
        )
    move = Move(
        kind="rollback",
        alias=config.alias,
        checkpoint=target.checkpoint,
        fingerprint=target.fingerprint,
        source=target.source,
        previous=present.checkpoint,
        restores=target.number,
        reason=config.reason,
        moved_by=config.moved_by or this_user(),
    )
    try:
        return result_of(history, commit_move(history, move))
    except StorageUnavailableError as error:  # which would be tried again, and might go back twice
        raise StorageError(
            f"{where} may have been rolled back, or not: {error} Look with 'offline registry {entry.uri}' first.",
            uri=entry.uri,
        ) from error
