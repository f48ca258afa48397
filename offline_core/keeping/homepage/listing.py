"""A list of what is below a root: what, when, from what. A line each, the newest last."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import Dataset, DatasetRef
from offline_core.data.datasets.folder_kind import BEST, LAST
from offline_core.data.datasets.manifest import Parent
from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.datasets.tags import FOLDER as TAGS
from offline_core.data.datasets.tags import read_tags
from offline_core.data.formats.exporting import ExportResult
from offline_core.judging.decisions.result import DecisionResult
from offline_core.judging.estimation.result import ESTIMATES
from offline_core.judging.ranking.result import OutlierResult
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.homepage.contents import Contents, read_contents
from offline_core.keeping.stored_results import kind_of
from offline_core.learning.metrics import METRICS_FILE
from offline_core.policies.evaluation.result import EVALUATIONS
from offline_core.policies.export_config import PolicyExportResult
from offline_core.runtime.units import count_text, size_text


class Listed(BaseModel):
    """One thing below a root."""

    model_config = ConfigDict(frozen=True)

    kind: str = Field(description="dataset, policy, training, expert, fine-tuning, sweep, evaluation, estimate, decision, …")
    name: str = Field(description="Relative to the root; of a dataset with its version, of an evaluation that of the policy.")
    made: datetime | None = Field(description="When; None: the store does not say.")
    what: str = Field(description="What it is or came to, in a few words.")
    source: str = Field(description="What it was made from, relative to the root.")
    tags: list[str] = Field([], description="Of a version of a dataset.")
    policy: str | None = Field(None, description="The policy that a run came to, relative to the root.")


class Listing(BaseModel):
    """All that is below a root."""

    model_config = ConfigDict(frozen=True)

    root: str
    entries: list[Listed] = Field(description="The oldest first.")
    problems: list[tuple[str, str]] = Field([], description="(file, why it is not listed).")


def list_root(root: str) -> Listing:
    """List the datasets, policies and results at a root and below, by what describes them; no data is read.

    Raises:
        StorageError: the root cannot be listed; of a disk, there is none.
    """
    found = read_contents(root)
    entries = [*_datasets(found), *_policies(found), *_results(found), *_tests(found), *_unfinished(found), *_aliases(found)]
    entries.sort(key=lambda each: (each.made or datetime.min.replace(tzinfo=UTC), each.name))
    return Listing(root=found.root.uri, entries=entries, problems=found.problems)


def _datasets(found: Contents) -> Iterator[Listed]:
    for folder, versions in found.datasets.items():
        tags = _tags(found, folder, versions[0])
        for version in versions:
            number, report = version.manifest.version, found.checks.get((folder, version.manifest.version))
            statistics = version.statistics
            what = f"{statistics.episodes:,} episodes, {statistics.steps:,} steps, {size_text(_bytes(version))}"
            yield Listed(
                kind="dataset",
                name=f"{folder or '.'}@{number}",
                made=version.manifest.created_at,
                what=f"{what}, check: {report.verdict}" if report else what,
                source=_made_from(found, version.manifest.operation.name, version.manifest.parents),
                tags=[name for name, tag in tags.items() if tag == number],
            )


def _tags(found: Contents, folder: str, dataset: Dataset) -> dict[str, int]:
    where = posixpath.join(folder, TAGS)
    if not any(name.startswith(f"{where}/") for name in found.sizes):
        return {}
    return found.tried(where, lambda: read_tags(dataset.location)) or {}


def _policies(found: Contents) -> Iterator[Listed]:
    """Those that are not what a run of the list came to."""
    for name, manifest in found.policies.items():
        if posixpath.dirname(name) not in found.results or posixpath.basename(name) not in (BEST, LAST):
            yield Listed(
                kind="policy",
                name=name or ".",
                made=manifest.created_at,
                what=_return(manifest.metrics) or manifest.fingerprint,
                source=_made_from(found, manifest.operation.name, manifest.parents),
                policy=name or ".",
            )


def _results(found: Contents) -> Iterator[Listed]:
    for name, result in found.results.items():
        manifest, dataset = found.policy_of(name), getattr(result, "dataset", None)
        checkpoint = getattr(result, "checkpoint", None)
        best = next((posixpath.join(name, each) for each in (BEST, LAST) if posixpath.join(name, each) in found.policies), None)
        made_from = "" if manifest is None else _made_from(found, "", manifest.parents)
        environment = manifest.environment.id if manifest is not None and manifest.environment is not None else ""
        yield Listed(
            kind=kind_of(result),
            name=name or ".",
            made=found.times.get(posixpath.join(name, RESULT_FILE), manifest and manifest.created_at),
            what=_outcome(found, name, result),
            source=_version(found, dataset) if isinstance(dataset, DatasetRef) else made_from or environment,
            policy=best or (found.name_of(checkpoint) if checkpoint else None),
        )


def _tests(found: Contents) -> Iterator[Listed]:
    for policy, evaluations in found.evaluations.items():
        for each in evaluations:
            yield Listed(
                kind="evaluation",
                name=policy or ".",
                made=found.times.get(posixpath.join(policy, EVALUATIONS, posixpath.basename(each.uri))),
                what=f"{_return(each.metrics)} of {each.environment}",
                source=policy or ".",
                policy=policy or ".",
            )
    for policy, estimates in found.estimates.items():
        for estimate in estimates:
            values = (f"{name} {each.value:.4g}" for name, each in estimate.estimates.items())
            yield Listed(
                kind="estimate",
                name=policy or ".",
                made=found.times.get(posixpath.join(policy, ESTIMATES, posixpath.basename(estimate.uri))),
                what=f"{', '.join(values)}; recorded {estimate.recorded.value:.4g}",
                source=_version(found, estimate.dataset),
                policy=policy or ".",
            )


def _unfinished(found: Contents) -> Iterator[Listed]:
    for name in found.unfinished:
        made = found.times.get(posixpath.join(name, METRICS_FILE))
        yield Listed(kind="training", name=name or ".", made=made, what="not done: it runs, or was stopped", source="")


def _aliases(found: Contents) -> Iterator[Listed]:
    for history in found.histories:
        for alias, move in history.aliases.items():
            yield Listed(
                kind="alias",
                name=f"{found.name_of(history.entry.uri)}@{alias}",
                made=move.moved_at,
                what=f"names the policy {move.fingerprint}",
                source=found.name_of(move.source or ""),
            )


def _outcome(found: Contents, name: str, result: BaseModel) -> str:
    if isinstance(result, DecisionResult):
        return f"{result.verdict}: {result.sentence}"
    if isinstance(result, SweepResult):
        return f"{len(result.settings):,} settings by {result.score.replace('_', ' ')}, best: {result.settings[0].name}"
    if isinstance(result, OutlierResult):
        return count_text(result.count, "outlier")
    if isinstance(result, ExportResult):
        return f"{count_text(result.episodes, 'episode')} as {result.format}"
    if isinstance(result, PolicyExportResult):
        return ", ".join(result.models)
    parts = [found.algorithm_of(name), _return(getattr(result, "metrics", {}))]
    return ", ".join(part for part in parts if part)


def _return(metrics: dict[str, float]) -> str:
    mean, episodes = metrics.get("episode_return_mean"), metrics.get("episodes")
    if mean is None:
        return ""
    return f"mean return {mean:.4g}" + ("" if episodes is None else f" over {episodes:,.0f} episodes")


def _made_from(found: Contents, operation: str, parents: list[Parent]) -> str:
    names = [f"{found.name_of(each.uri)}{'' if each.version is None else f'@{each.version}'}" for each in parents]
    return " ".join(part for part in (operation.replace("_", "-"), ", ".join(dict.fromkeys(names))) if part)


def _version(found: Contents, dataset: DatasetRef) -> str:
    return f"{found.name_of(dataset.uri)}@{dataset.version}"


def _bytes(version: Dataset) -> int:
    return sum(file.bytes for file in version.manifest.files)
