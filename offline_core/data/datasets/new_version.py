"""The next version of a dataset, as what a stage makes: found if the same was made before, else written and committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from offline_core.data.datasets.commit import commit, find_version, prepared
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.datasets.writer import WrittenFiles
from offline_core.data.inputs.input_columns import common_inputs
from offline_core.data.store.location import Location
from offline_core.runtime.config import Config
from offline_core.runtime.result import Result
from offline_core.runtime.stage import Stage

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class BegunVersion:
    """A version that is being written: what the work of a stage is told, and what it commits by."""

    folder: Location
    """Folder of the dataset, in which the files go."""
    operation: Operation
    parents: Sequence[Parent]

    def commit(self, files: Sequence[Any], **more: Any) -> Dataset:
        """Commit the files as this version, which knows its operation and parents; see `commit`."""
        return commit(self.folder.uri, files, operation=self.operation, parents=self.parents, **more)

    def commit_copy(
        self, written: WrittenFiles, sources: Sequence[Dataset], *, report: Mapping[str, Any] = MappingProxyType({})
    ) -> Dataset:
        """Commits copies of episodes of the sources.

        The version has the spaces of the first source, and the environment if all sources have the same.
        """
        first = sources[0]
        environment = first.manifest.environment
        return self.commit(
            written.files,
            format=written.format,
            statistics=written.statistics,
            environment=environment if all(source.manifest.environment == environment for source in sources) else None,
            observation_space=first.observation_space,
            action_space=first.action_space,
            input_columns=common_inputs([(str(source.location.uri), source.manifest.input_columns) for source in sources]),
            report=report,
        )


@dataclass(frozen=True)
class NewVersion(Generic[R]):
    """What a stage yields that writes a version; its work returns what it committed.

    If the work fails, no version is committed, and folders created for it are removed again.
    """

    output: str
    config: Config
    """Its values, but for those that are excluded, decide what is written."""
    parents: Sequence[Parent]
    result: Callable[[Dataset], R]
    """The result of the stage that made a version, now or before; a look calls it, so it does no work."""
    finish: Callable[[R, Dataset], R] = lambda result, _: result
    """What is to be there beside the version, made now or before, such as clips of it: makes what is missing, and says so."""
    exclude: Set[str] = frozenset()
    more: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What decides beside the config."""
    may_reuse: bool = True
    """False: the operation does not say all that decides what is written."""

    def operation(self, stage: Stage[..., Any]) -> Operation:
        """The operation that identifies it."""
        return Operation.of(stage.name, self.config, version=stage.version, exclude=self.exclude, **self.more)

    def found(self, stage: Stage[..., Any]) -> R | None:
        """The result of the version that the same stage made of the same before."""
        known = self._known(stage)
        return None if known is None else self._reused(known)

    def make(self, stage: Stage[..., Any], work: Callable[[BegunVersion], Dataset]) -> R:
        """See `Making`; other runs may write versions meanwhile."""
        if (known := self._known(stage)) is not None:
            return self.finish(self._reused(known), known)
        with prepared(self.output) as folder:
            made = work(BegunVersion(folder, self.operation(stage), self.parents))
        log.info("%s: %s", stage.name, made.ref)
        return self.finish(self.result(made), made)

    def _known(self, stage: Stage[..., Any]) -> Dataset | None:
        return find_version(self.output, self.operation(stage), self.parents) if self.may_reuse else None

    def _reused(self, known: Dataset) -> R:
        return self.result(known).model_copy(update={"reused": True})
