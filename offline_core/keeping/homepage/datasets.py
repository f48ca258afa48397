"""Datasets: their versions, statistics, quality and episodes."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

import polars as pl

from offline_core.data.curation.scores import SCORES
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.tags import read_tags
from offline_core.data.quality.result import QualityReport
from offline_core.judging.ranking.result import OutlierResult
from offline_core.keeping.contents import Contents
from offline_core.keeping.homepage.explorer import read_scores
from offline_core.keeping.homepage.facts import column_rows, dataset_facts
from offline_core.keeping.homepage.page_contents import PageContents
from offline_core.keeping.homepage.values import minute, number, summary
from offline_core.runtime.provenance import RUN


def datasets_of(contents: Contents) -> dict[str, dict[str, Any]]:
    """The rows of the table of datasets by name, the one with the newest version first."""
    order = sorted(contents.datasets, key=lambda name: contents.datasets[name][-1].manifest.created_at, reverse=True)
    return {name or ".": row for name, row in contents.each(order, lambda name: _row(contents, name))}


def _row(contents: Contents, name: str) -> dict[str, Any]:
    latest = contents.datasets[name][-1]
    manifest, statistics = latest.manifest, latest.statistics
    report = contents.checks.get((name, manifest.version))
    failed = [finding.rule for finding in report.findings if finding.verdict == "fail"] if report else []
    return {
        "version": manifest.version,
        "made": minute(manifest.created_at),
        "by": manifest.operation.stage.replace("_", " "),
        "episodes": statistics.episodes,
        "steps": statistics.steps,
        "return": number(statistics.returns.mean) if statistics.returns.count else None,
        "bytes": latest.ref.bytes,
        "verdict": "not checked" if report is None else report.verdict,
        "failed": ", ".join(failed),
    }


def dataset_in(contents: Contents, name: str) -> dict[str, Any]:
    """The page of one dataset, without its episodes."""
    versions = contents.datasets[name]
    latest = versions[-1]
    tags = contents.tried(f"{name}/_versions/tags", lambda: read_tags(latest.location)) or {}
    report = contents.checks.get((name, latest.manifest.version))
    known = latest.statistics.columns or (report.statistics.columns if report else None)
    return {
        "name": name or ".",
        "versions": [
            _version(contents, dataset, tags, contents.checks.get((name, dataset.manifest.version)))
            for dataset in reversed(versions)
        ],
        "facts": contents.tried(name, lambda: dataset_facts(latest)) or {},
        "columns": contents.tried(
            name,
            lambda: [
                [label, *(value if isinstance(value, str) else number(value, 4) for value in numbers), lost]
                for label, numbers, lost in column_rows(known or {}, latest.manifest.input_columns)
            ],
        )
        or [],
        "quality": None if report is None else _quality(report),
    }


def _version(contents: Contents, dataset: Dataset, tags: Mapping[str, int], report: QualityReport | None) -> dict[str, Any]:
    manifest, statistics = dataset.manifest, dataset.statistics
    return {
        "version": manifest.version,
        "made": minute(manifest.created_at),
        "by": manifest.operation.stage.replace("_", " "),
        "from": ", ".join(
            contents.name_of(parent.uri) + (f" v{parent.version}" if parent.version else "") for parent in manifest.parents
        ),
        "episodes": statistics.episodes,
        "steps": statistics.steps,
        "bytes": dataset.ref.bytes,
        "return": summary(statistics.returns),
        "length": summary(statistics.lengths),
        "actions": manifest.actions or "",
        "verdict": "not checked" if report is None else report.verdict,
        "run": manifest.provenance.get(RUN, ""),
        "tags": ", ".join(name for name, version in tags.items() if version == manifest.version),
    }


def _quality(report: QualityReport) -> dict[str, Any]:
    card = report.card()
    findings = [
        [finding.rule, finding.outcome, finding.message, finding.advice]
        for finding in sorted(report.findings, key=lambda finding: {"fail": 0, "warn": 1, "pass": 2}[finding.verdict])
    ]
    told = {"level": card.verdict, "status": card.word, "told": card.sentence}
    return {"verdict": report.verdict, "findings": findings} | told


def scores_of(contents: PageContents, dataset: Dataset) -> pl.DataFrame | None:
    """Of the outliers that were looked for in this version."""
    fingerprint = dataset.manifest.fingerprint
    for folder, result in contents.other_results.items():
        if isinstance(result, OutlierResult) and result.dataset.fingerprint == fingerprint:
            name = posixpath.join(folder, SCORES)
            return contents.tried(name, lambda name=name: read_scores(contents.catalogue.location(name)))  # type: ignore[misc]
    return None
