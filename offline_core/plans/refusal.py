"""What the stages of a chain refuse by its parameters, said before the first of them runs, and a Prefect server starts.

Each stage looks again when it runs. What would take longer than a glance, or may pass by itself, is left to it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym

from offline_core.data.datasets.dataset import is_dataset, open_dataset
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import OfflineError

if TYPE_CHECKING:
    from offline_core.data.importing.config import ImportConfig

# Each check imports what it needs: a command of one stage would spend more time on the models of others than on its work.

ANY_OBSERVATIONS = gym.spaces.Box(-1.0, 1.0, (1,))
"""Whether an algorithm can act in a space of actions does not depend on them."""
GLANCE_BYTES = 16 * 2**20
"""Up to this size the first file of an import is opened with all that its columns are made of, to try its first rows."""


def refuse(parameters: Mapping[str, Any]) -> None:
    """Raise what a stage of a chain would raise for `parameters`: its configs and places by name.

    Raises:
        OfflineError: as the stage would; none whose cause may pass.
    """
    for check in (_places, _conditions, _environment, _algorithms, _source):
        try:
            check(parameters)
        except OfflineError as error:
            if not error.may_pass:
                raise


def _places(parameters: Mapping[str, Any]) -> None:
    if "config" not in parameters and isinstance(root := parameters.get("root"), str):
        _check_writable(Location.of(root))
    if isinstance(registry := parameters.get("registry"), str):
        from offline_core.policies.registry import entry_of

        entry_of(registry)


def _check_writable(folder: Location) -> None:
    """Check the folder of a chain, or the first one above it that exists; on a disk, for a bucket would have to be asked."""
    if not folder.is_local:
        return
    path = folder.path
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    with storage_errors("write", folder.uri):
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _conditions(parameters: Mapping[str, Any]) -> None:
    """Refuse wrong conditions before a chain records, which takes hours."""
    from offline_core.data.curation.config import PruningConfig

    for config in parameters.values():
        if isinstance(config, PruningConfig) and (config.where or config.where_steps):
            from offline_core.data.curation.condition import Condition
            from offline_core.data.curation.selection import condition

            condition(config)
            if config.where_steps is not None:
                Condition.sql(config.where_steps)


def _environment(parameters: Mapping[str, Any]) -> None:
    if (expert := parameters.get("expert")) is not None:
        from offline_core.data.environments.vector_env import spec_of
        from offline_core.runtime.code_permission import remember_code

        remember_code(expert)
        spec_of(expert.environment)


def _algorithms(parameters: Mapping[str, Any]) -> None:
    """Refuse wrong algorithms before a chain trains an expert or imports, which takes hours."""
    expert, training = (cast(Any, parameters.get(name)) for name in ("expert", "training"))
    source = parameters.get("source")
    actions: gym.Space[Any] | None = None
    if expert is not None:
        from offline_core.data.environments.vector_env import spaces_of

        _, actions = spaces_of(expert.environment)
    elif isinstance(source, str) and is_dataset(source):
        actions = open_dataset(source).action_space
    learning = [config for config in (expert, training) if isinstance(getattr(config, "algorithm", None), str)]
    if learning and actions is not None:
        from offline_core.learning.algorithms.networks import Networks

        for config in learning:
            Networks(config.chosen, ANY_OBSERVATIONS, actions)


def _source(parameters: Mapping[str, Any]) -> None:
    if (source := parameters.get("source")) is None:
        return
    from offline_core.data.importing.config import ImportConfig

    [*configs] = (config for config in parameters.values() if isinstance(config, ImportConfig))
    if not configs:
        return
    config, paths = configs[0], [source] if isinstance(source, str) else source
    joined = [path for join in config.columns.joins for path in join.paths]
    is_local = not any("://" in path for path in [*paths, *joined])
    if is_local and not (len(paths) == 1 and is_dataset(paths[0])) and not config.source.arguments:
        _first_rows(config, paths)


def _first_rows(config: ImportConfig, paths: Sequence[str]) -> None:
    from offline_core.data.formats.sources.fingerprint import files_of
    from offline_core.data.importing.planning.plan import settled
    from offline_core.data.importing.reading import Source
    from offline_core.data.importing.report import Findings
    from offline_core.data.importing.resolving import preparation_of

    if config.source.is_own or config.source.is_rays or config.unreadable != "fail":
        return
    source = Source.of(paths, config)
    if source.episode_files:
        return
    readers = source.readers if config.columns.needs_data else source.readers[:1]
    every = [*readers, *(reader for _, joined in source.joins for reader in joined)]
    if sum(size for reader in every for _, size, _ in files_of(reader, source.listing)) > GLANCE_BYTES:
        return
    if (rows := next(iter(readers[0].batches()), None)) is not None:
        preparation = preparation_of(config, readers, source.listing)
        _, bad = preparation(rows, file=0, first_row=0, uri=readers[0].uri, findings=Findings("quarantine"))
        if bad:
            settled(config, paths, bad[0].located_error)
