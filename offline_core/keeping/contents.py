"""What is below a root, read as what it is: datasets, policies, results, moves. Each kind is read when it is asked for."""

from __future__ import annotations

import functools
import logging
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from offline_core.data.datasets.about import OF_RESULTS, read_about
from offline_core.data.datasets.catalogue import Catalogue, FileState, Kind, open_catalogue, read_catalogue
from offline_core.data.datasets.dataset import Dataset, open_version
from offline_core.data.datasets.failure import Failure, read_failure
from offline_core.data.datasets.manifest import Parent
from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.importing.imported import LATE
from offline_core.data.quality.check import last_report
from offline_core.data.quality.result import CHECKS, QualityReport
from offline_core.data.store.location import Location
from offline_core.data.store.temporary_names import TEMPORARY
from offline_core.errors import DatasetNotFoundError, OfflineError, StorageError, misread, unexpected
from offline_core.judging.estimation.result import EstimateResult
from offline_core.keeping.stored_results import read_measured, read_result
from offline_core.policies.evaluation import EvaluationResult
from offline_core.policies.manifest import PolicyManifest, read_policy_manifest
from offline_core.policies.registry import History, read_history
from offline_core.runtime.parameter_errors import problems
from offline_core.runtime.prefetch import several
from offline_core.runtime.result import Result

log = logging.getLogger(__name__)

_HASH = r"[0-9a-f]{12}\.parquet"
_DATA = re.compile(rf"(?:[^_./][^/]*/run-\d{{6,}}-\d{{5,}}/)?(?!{re.escape(TEMPORARY)})[^_./][^/]*-\d{{6,}}-{_HASH}")
"""What writers and recorders call data files."""
_LATE = re.compile(rf"{LATE}/(?:cuts|rows)-(?:[^/]+-)?{_HASH}")
T = TypeVar("T")


class Contents:
    """Datasets, policies and results by the names of their folders, relative to the root; the root itself is the empty one.

    Arguments:
        is_complete: All that is there, as a deletion has to know it: a file that cannot be read is an error. Otherwise what
            people look at: such a file is a problem to report, and what others need for their work alone is left out.
        known: What was read of files before, by name, each with its state then; a file that is as it was is not read again, and
            what is read is added. None: nothing is remembered.
    """

    def __init__(
        self, catalogue: Catalogue, *, is_complete: bool = False, known: dict[str, tuple[FileState, Any]] | None = None
    ) -> None:
        self.catalogue, self.root = catalogue, catalogue.root
        self.problems: list[tuple[str, str]] = []
        """(file, why it is not shown)."""
        self._is_complete = is_complete
        self._known = known

    @functools.cached_property
    def datasets(self) -> dict[str, list[Dataset]]:
        """All versions, oldest first."""
        datasets: dict[str, list[Dataset]] = {}
        for name, dataset in self.once(self._names("version"), self._version):
            datasets.setdefault(posixpath.dirname(posixpath.dirname(name)), []).append(dataset)
        for versions in datasets.values():
            versions.sort(key=lambda dataset: dataset.manifest.version)
        return datasets

    @property
    def versions(self) -> Iterator[Dataset]:
        """All versions of all datasets."""
        for versions in self.datasets.values():
            yield from versions

    @functools.cached_property
    def checks(self) -> dict[tuple[str, int], QualityReport]:
        """The last check by folder and version."""
        versions = {
            posixpath.join(folder, f"{CHECKS}/{version.manifest.version:06d}.json"): (folder, version)
            for folder, versions in self.datasets.items()
            for version in versions
        }
        reports = self.once(sorted(self.catalogue.files.keys() & versions.keys()), lambda name: last_report(versions[name][1]))
        return {(versions[name][0], versions[name][1].manifest.version): report for name, report in reports}

    @functools.cached_property
    def policies(self) -> dict[str, PolicyManifest]:
        """Of what people look at: without copies in a registry, kept series, and the last policy where there is a best one."""
        read = self.once(self._names("policy"), lambda name: read_policy_manifest(self.catalogue.location(name).parent.uri))
        return {posixpath.dirname(name): manifest for name, manifest in read}

    @functools.cached_property
    def results(self) -> dict[str, Result]:
        """By the folder of its `result.json`."""
        return {posixpath.dirname(name): result for name, result in self._results("result")}

    @functools.cached_property
    def evaluations(self) -> dict[str, list[EvaluationResult]]:
        """By policy, see `_of_policies`."""
        return self._of_policies("evaluation", EvaluationResult)

    @functools.cached_property
    def estimates(self) -> dict[str, list[EstimateResult]]:
        """By policy, see `_of_policies`."""
        return self._of_policies("estimate", EstimateResult)

    @functools.cached_property
    def histories(self) -> list[History]:
        """Of the names in registries."""
        folders = dict.fromkeys(posixpath.dirname(name) for name in self._names("move"))
        return [history for _, history in self.each(folders, lambda name: read_history(self.catalogue.location(name).parent))]

    @functools.cached_property
    def unfinished(self) -> list[str]:
        """Folders of trainings that have metrics and no result: they run, or were stopped."""
        folders = {posixpath.dirname(name) for name in self._names("metrics")}
        return sorted(name for name in folders if posixpath.join(name, RESULT_FILE) not in self.catalogue.files)

    @functools.cached_property
    def failures(self) -> dict[str, Failure]:
        """Why the last runs of trainings failed, by folder."""
        failures_by_file = self.once(
            self._names("failure"), lambda name: read_failure(self.catalogue.location(posixpath.dirname(name)))
        )
        failures = {posixpath.dirname(name): failure for name, failure in failures_by_file}
        return {
            name: failure for name, failure in failures.items() if posixpath.join(name, RESULT_FILE) not in self.catalogue.files
        }

    @functools.cached_property
    def notes(self) -> dict[str, str]:
        """What is said of trainings and other results, by folder."""
        last = {
            posixpath.dirname(name): name
            for name in self._names("about")
            if posixpath.basename(posixpath.dirname(name)) == OF_RESULTS
        }
        notes = self.once(last.values(), lambda name: read_about(self.catalogue.location(name).parent.parent, OF_RESULTS))
        return {posixpath.dirname(posixpath.dirname(name)): about.description for name, about in notes if about.description}

    def policy_of(self, name: str) -> PolicyManifest | None:
        """The policy of the experiment in a folder: the best one, or the last."""
        return self.policies.get(posixpath.join(name, "best")) or self.policies.get(posixpath.join(name, "last"))

    def name_of(self, uri: str) -> str:
        """A URI relative to the root, if it is below it."""
        prefix = f"{self.root.uri.rstrip('/')}/"
        return uri.removeprefix(prefix) if uri.startswith(prefix) else uri

    @functools.cached_property
    def _by_fingerprint(self) -> dict[str, list[Dataset]]:
        versions: dict[str, list[Dataset]] = {}
        for version in self.versions:
            for fingerprint in version.manifest.fingerprints:  # each hashes the names of all files
                versions.setdefault(fingerprint, []).append(version)
        return versions

    def with_fingerprints(self, fingerprints: Iterable[str]) -> list[Dataset]:
        """The versions that have one of these, now or before episodes of them were forgotten."""
        return [version for fingerprint in dict.fromkeys(fingerprints) for version in self._by_fingerprint.get(fingerprint, ())]

    def made_from(self, parents: Sequence[Parent]) -> list[Dataset]:
        """The versions that parents name, as they are now."""
        return self.with_fingerprints(parent.fingerprint for parent in parents if parent.kind == "dataset")

    @functools.cached_property
    def parents(self) -> Mapping[str, list[str]]:
        """The other datasets below the root that any version of each one was made from."""
        names = {versions[0].location.uri: name for name, versions in self.datasets.items()}
        made_from = {
            name: {names[parent.location.uri] for dataset in versions for parent in self.made_from(dataset.manifest.parents)}
            for name, versions in self.datasets.items()
        }
        return {name: sorted(parents - {name}) for name, parents in made_from.items()}

    def parents_first(self) -> list[str]:
        """The datasets in an order in which each comes after those that it was made from, as far as they are no circle."""
        done: dict[str, None] = {}
        while rest := [name for name in self.parents if name not in done]:
            missing = {name: sum(parent not in done for parent in self.parents[name]) for name in rest}
            ready = [name for name in rest if not missing[name]] or [min(rest, key=lambda name: (missing[name], name))]
            done |= dict.fromkeys(sorted(ready))
        return [*done]

    def files_of(self, name: str) -> list[str]:
        """The data files of a dataset, relative to its folder: those named as this package does, not of datasets below it."""
        return [file for file in self.catalogue.by_dataset[name] if _DATA.fullmatch(file)]

    def late_files_of(self, name: str) -> list[str]:
        """The files of a dataset that only appends read, likewise."""
        return [file for file in self.catalogue.by_dataset[name] if _LATE.fullmatch(file)]

    def tried(self, name: str, read: Callable[[], T]) -> T | None:
        """What `read` returns; None if it fails, which is a problem with the file of that name."""
        try:
            return read()
        except ValidationError as error:
            self.problems.append((name, problems(error)))
        except OfflineError as error:
            self.problems.append((name, str(error)))
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, OSError) as error:
            self.problems.append((name, misread(error)))
        except Exception as error:  # a defect of this package costs no more than what it meets
            log.debug("%s is not shown", name, exc_info=True)
            self.problems.append((name, unexpected(error)))
        return None

    def each(self, names: Iterable[str], read: Callable[[str], T | None]) -> list[tuple[str, T]]:
        """(name, what was read) of those that can be, in this order; of a remote root several at a time."""
        names = [*names]
        one = read if self._is_complete else lambda name: self.tried(name, lambda: read(name))
        values = [one(name) for name in names] if self.root.is_local else several(one, names)
        return [(name, value) for name, value in zip(names, values, strict=True) if value is not None]

    def once(self, files: Iterable[str], read: Callable[[str], T | None]) -> list[tuple[str, T]]:
        """As `each`, of files; those that are as they were when they were read before are not read again."""
        if (known := self._known) is None:
            return self.each(files, read)
        states = {name: self.catalogue.files[name] for name in files}
        changed = [name for name, state in states.items() if name not in known or known[name][0] != state]
        known.update({name: (states[name], value) for name, value in self.each(changed, read)})
        return [(name, known[name][1]) for name, state in states.items() if name in known and known[name][0] == state]

    def _version(self, name: str) -> Dataset | None:
        """The version of a manifest; None: another run deleted it since it was listed."""
        folder, number = posixpath.dirname(posixpath.dirname(name)), int(posixpath.basename(name)[:-5])
        try:
            return open_version(self.catalogue.location(folder), number)
        except StorageError:
            if not self._is_complete or self.catalogue.location(name).is_file():
                raise
            return None

    def _results(self, kind: Kind) -> list[tuple[str, Result]]:
        return self.once(self._names(kind), lambda name: read_result(self.catalogue.location(name)))

    def _of_policies(self, kind: Kind, model: type[T]) -> dict[str, list[T]]:
        """What was measured of policies, by their folders: of one that was replaced in its folder nothing."""
        by_policy: dict[str, list[T]] = {}
        for name, (result, fingerprints) in self.once(
            self._names(kind), lambda name: read_measured(self.catalogue.location(name))
        ):
            folder = posixpath.dirname(posixpath.dirname(name))
            policy = self.policies.get(folder)
            if isinstance(result, model) and (policy is None or fingerprints <= {policy.fingerprint}):
                by_policy.setdefault(folder, []).append(result)
        return by_policy

    def _names(self, kind: Kind) -> list[str]:
        return self.catalogue.of(kind) if self._is_complete else self.catalogue.shown(kind)


def read_contents(root: str, *, is_complete: bool = False) -> Contents:
    """List a root; what describes things there is read when it is asked for, and no data.

    Arguments:
        is_complete: see `Contents`.

    Raises:
        StorageError: the root cannot be listed; of a disk, there is none.
        DatasetNotFoundError: all that is there was asked for, and there is no dataset.
    """
    if not is_complete:
        return Contents(open_catalogue(root))
    location = Location.of(root)
    catalogue = read_catalogue(location)
    if not catalogue.of("version"):
        location.check_bucket()
        raise DatasetNotFoundError(f"There is no dataset at or below {location.uri}. Check the path.")
    return Contents(catalogue, is_complete=True)
