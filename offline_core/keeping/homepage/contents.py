"""What is below a root. A file that cannot be read is a problem to report, and the rest is read."""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError

from offline_core.data.datasets.dataset import VERSIONS, Dataset, open_version
from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.quality.check import last_report
from offline_core.data.quality.result import CHECKS, QualityReport
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError, StorageError
from offline_core.judging.decisions.result import MODEL, SIDES
from offline_core.judging.estimation.result import ESTIMATES, OffPolicyResult
from offline_core.keeping.stored_results import read_result
from offline_core.learning.algorithms.registry import AlgorithmChoice
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.result import ExpertResult
from offline_core.learning.metrics import METRICS_FILE
from offline_core.learning.result import TrainingResult
from offline_core.policies.evaluation.result import EVALUATIONS, EvaluationResult
from offline_core.policies.manifest import POLICY_FILE, PolicyManifest, read_policy_manifest
from offline_core.policies.registry.history import CHECKPOINTS, HISTORY, History, read_history
from offline_core.policies.series import SERIES
from offline_core.runtime.parameter_errors import problems
from offline_core.runtime.result import Result

log = logging.getLogger(__name__)

READERS = 16
"""Files that are read at a time where they are remote."""
_MANIFEST = re.compile(rf"(?:(.*)/)?{VERSIONS}/(\d{{6,}})\.json")
_SIDE = re.compile(rf"(?:(.*)/)?{SIDES}/[0-9a-f]{{16}}/[^/]+/{VERSIONS}/\d{{6,}}\.json")
_OF_POLICY = re.compile(rf"(?:(.*)/)?(?:{EVALUATIONS}|{ESTIMATES})/[0-9a-f]+\.json")
_MOVE = re.compile(rf"(.+)/{HISTORY}/\d{{6,}}\.json")
_COPY = re.compile(rf"(?:^|.*/){CHECKPOINTS}/[0-9a-f]{{16}}")
_IN_SERIES = re.compile(rf"(?:^|.*/){SERIES}/\d+")
T = TypeVar("T")


@dataclass(slots=True)
class Contents:
    """Names are of folders, relative to the root; the root itself is the empty one."""

    root: Location
    sizes: Mapping[str, int]
    """Bytes of each file, by its name relative to the root."""
    times: Mapping[str, datetime] = field(default_factory=dict)
    """When each file was written, where the store says so."""
    datasets: dict[str, list[Dataset]] = field(default_factory=dict)
    """All versions that can be read, oldest first."""
    checks: dict[tuple[str, int], QualityReport] = field(default_factory=dict)
    """The last one by folder and version."""
    policies: dict[str, PolicyManifest] = field(default_factory=dict)
    """Without copies in a registry, kept series, and the last policy where there is a best one."""
    results: dict[str, Result] = field(default_factory=dict)
    """By the folder of its `result.json`."""
    evaluations: dict[str, list[EvaluationResult]] = field(default_factory=dict)
    """By policy."""
    estimates: dict[str, list[OffPolicyResult]] = field(default_factory=dict)
    """By policy."""
    histories: list[History] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    """Folders of trainings that have metrics and no result: they run, or were stopped."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(file, why it is not shown)."""

    def place(self, name: str) -> Location:
        """A folder or file below the root."""
        return self.root.child(name) if name else self.root

    def policy_of(self, name: str) -> PolicyManifest | None:
        """The policy of the experiment in a folder: the best one, or the last."""
        return self.policies.get(posixpath.join(name, "best")) or self.policies.get(posixpath.join(name, "last"))

    def algorithm_of(self, name: str) -> str:
        """What the experiment in a folder learned with; empty if that is not known."""
        policy, defaults = self.policy_of(name), {ExpertResult: ExpertConfig, TrainingResult: AlgorithmChoice}
        if policy is None:
            return ""
        kind = type(self.results.get(name))
        algorithm = policy.operation.config.get("algorithm", defaults[kind]().algorithm if kind in defaults else "")
        return str(algorithm.get("name", "") if isinstance(algorithm, Mapping) else algorithm)

    def name_of(self, uri: str) -> str:
        """A URI relative to the root, if it is below it."""
        prefix = f"{self.root.uri.rstrip('/')}/"
        return uri.removeprefix(prefix) if uri.startswith(prefix) else uri

    def tried(self, name: str, read: Callable[[], T]) -> T | None:
        """What `read` returns; None if it fails, which is a problem with the file of that name."""
        try:
            return read()
        except ValidationError as error:
            self.problems.append((name, problems(error)))
        except OfflineError as error:
            self.problems.append((name, str(error)))
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, OSError) as error:
            self.problems.append((name, f"{type(error).__name__}: {error}"))
        return None

    def each(self, names: Iterable[str], read: Callable[[str], T]) -> list[tuple[str, T]]:
        """(name, what was read) of those that can be, in this order; of a remote root several at a time."""
        names = [*names]
        if self.root.is_local:
            tried = [self.tried(name, lambda name=name: read(name)) for name in names]  # type: ignore[misc]
        else:
            with ThreadPoolExecutor(READERS) as pool:
                tried = [*pool.map(lambda name: self.tried(name, lambda: read(name)), names)]
        return [(name, each) for name, each in zip(names, tried, strict=True) if each is not None]


def read_contents(root: str) -> Contents:
    """List a root and read what describes it: manifests, results, histories; no data.

    Raises:
        StorageError: the root cannot be listed; of a disk, there is none.
    """
    location = Location.of(root)
    begin = len(location.path.rstrip("/")) + 1
    files = {info.path[begin:]: info for info in location.listed() if info.is_file}
    sizes = {name: info.size for name, info in files.items()}
    if not sizes:
        location.check_bucket()
        if location.is_local and not location.is_folder():
            raise StorageError(f"There is no folder {location.uri}. Check the path.", uri=location.uri)
    found = Contents(location, sizes, {name: info.mtime for name, info in files.items() if info.mtime is not None})
    names = _shown(sizes)
    _read_datasets(found, names)
    _read_policies(found, names)
    _read_results(found, names)
    moved = dict.fromkeys(f"{match[1]}/{HISTORY}" for each in names if (match := _MOVE.fullmatch(each)))
    found.histories = [history for _, history in found.each(moved, lambda name: read_history(found.place(name).parent))]
    folders = {posixpath.dirname(name) for name in names if posixpath.basename(name) == METRICS_FILE}
    found.unfinished = sorted(name for name in folders if posixpath.join(name, RESULT_FILE) not in sizes)
    return found


def _shown(names: Iterable[str]) -> list[str]:
    """Without hidden files, and without what decisions made to decide: the sides of a log, and a model of what acted."""
    visible = sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")))
    inner = {
        posixpath.join(match[1] or "", of) for name in visible if (match := _SIDE.fullmatch(name)) for of in (SIDES, MODEL)
    }

    def is_inner(name: str) -> bool:
        parts = name.split("/")
        return any(part in (SIDES, MODEL) and "/".join(parts[: i + 1]) in inner for i, part in enumerate(parts))

    return [name for name in visible if not inner or not is_inner(name)]


def _read_datasets(found: Contents, names: list[str]) -> None:
    def read(name: str) -> tuple[str, Dataset]:
        match = _MANIFEST.fullmatch(name)
        assert match is not None
        return match[1] or "", open_version(found.place(match[1] or ""), int(match[2]))

    for _, (folder, dataset) in found.each(filter(_MANIFEST.fullmatch, names), read):
        found.datasets.setdefault(folder, []).append(dataset)
    for versions in found.datasets.values():
        versions.sort(key=lambda dataset: dataset.manifest.version)
    checks = {
        posixpath.join(folder, f"{CHECKS}/{each.manifest.version:06d}.json"): (folder, each)
        for folder, versions in found.datasets.items()
        for each in versions
    }
    reports = found.each(sorted(found.sizes.keys() & checks.keys()), lambda name: last_report(checks[name][1]))
    found.checks = {(checks[name][0], checks[name][1].manifest.version): report for name, report in reports if report}


def _read_policies(found: Contents, names: list[str]) -> None:
    folders = {posixpath.dirname(name) for name in names if posixpath.basename(name) == POLICY_FILE}

    def is_shown(folder: str) -> bool:
        if _COPY.fullmatch(folder) or _IN_SERIES.fullmatch(folder):
            return False
        return posixpath.basename(folder) != "last" or posixpath.join(posixpath.dirname(folder), "best") not in folders

    def read(name: str) -> PolicyManifest:
        return read_policy_manifest(found.place(posixpath.dirname(name)).uri)

    shown = (posixpath.join(folder, POLICY_FILE) for folder in sorted(filter(is_shown, folders)))
    found.policies = {posixpath.dirname(name): manifest for name, manifest in found.each(shown, read)}


def _read_results(found: Contents, names: list[str]) -> None:
    def read(name: str) -> Result | None:
        return read_result(found.place(name))

    results = (name for name in names if posixpath.basename(name) == RESULT_FILE)
    found.results = {posixpath.dirname(name): result for name, result in found.each(results, read) if result}
    for name, of in found.each(filter(_OF_POLICY.fullmatch, names), read):
        folder = posixpath.dirname(posixpath.dirname(name))
        if isinstance(of, EvaluationResult):
            found.evaluations.setdefault(folder, []).append(of)
        elif isinstance(of, OffPolicyResult):
            found.estimates.setdefault(folder, []).append(of)
