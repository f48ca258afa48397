"""The card of whatever is in a folder: a dataset, a policy, or what a training, a sweep or another stage left."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping

from offline_core.data.datasets.dataset import Dataset, is_dataset, open_dataset, versions
from offline_core.data.datasets.dataset_card import CARDS
from offline_core.data.datasets.result_cache import RESULT_FILE, is_result
from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import space_from_json
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.quality.check import last_report
from offline_core.data.store.location import Location
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.homepage.facts import COLUMN_NUMBERS, column_rows, dataset_facts, made_by
from offline_core.keeping.stored_results import read_result
from offline_core.policies.lineage import lineage, outline
from offline_core.policies.manifest import POLICY_FILE, find_policy, read_policy_manifest
from offline_core.policies.registry.address import parse_address
from offline_core.policies.series import saved_in, series_of
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.reporting.returns import played
from offline_core.runtime.units import size_text

MAX_FILES = 20
BEST, LAST = "best", "last"
OF_DATASETS = ("Shown", "Episodes", "Steps", "Return", "Length")
"""The facts of a dataset that come first."""


def card_at(uri: str, version: int | None = None) -> Card:
    """What is at a location: a result that a stage stored there, a policy, a training that goes on, or a dataset.

    Raises:
        DatasetNotFoundError: none of these.
    """
    place, address = Location.of(uri), parse_address(uri)
    if place.uri.endswith(".json") and place.is_file() and (result := read_result(place)) is not None:
        return result.card()
    if (address is not None and address.exists) or place.child(POLICY_FILE).is_file():
        return policy_card(uri)
    file = place.child(RESULT_FILE)
    result = read_result(file) if file.is_file() and is_result(file) else None
    if place.child(BEST).child(POLICY_FILE).is_file():
        return policy_card(place.child(BEST).uri)
    if result is not None:
        card = result.card()
        return dataclasses.replace(card, sections=[*card.sections, _runs(result)]) if isinstance(result, SweepResult) else card
    if saved_in(place):
        return Card("Training", word="Not finished", sentence=f"{place.uri} runs, or was stopped.", sections=[_series(place)])
    if place.child("card.html").is_file() and not is_dataset(uri):
        return Card("Chain", word="Made by a chain", sentence="Its card is a page.", places=[place.child("card").uri])
    return dataset_card(uri, version)


def dataset_card(uri: str, version: int | None) -> Card:
    """Versions, content, spaces, files and lineage of a dataset, and what its last check says."""
    dataset = open_dataset(uri, version)
    manifest, report = dataset.manifest, last_report(dataset)
    told = {name.capitalize(): text for name, text in dataset_facts(dataset).items()}
    facts = {
        "Dataset": dataset.location.uri,
        "Versions": ", ".join(map(str, versions(uri))) or "none: a folder of Parquet files",
        **{name: told[name] for name in OF_DATASETS if name in told},
    }
    checked = None if report is None else report.card()
    known = manifest.statistics.columns or (report.statistics.columns if report else None)
    unknown = [] if known or dataset.is_foreign else ["They are not known yet; 'offline check' computes them."]
    return Card(
        "Dataset",
        facts,
        verdict="grey" if checked is None else checked.verdict,
        word="Not checked" if checked is None else checked.word,
        sentence=str(dataset.ref) if checked is None else checked.sentence,
        warnings=() if checked is None else checked.warnings,
        details={name: text for name, text in told.items() if name not in facts},
        sections=[
            _files(dataset),
            Section("Statistics of columns", unknown, *_statistics(known or {}, manifest.input_columns)),
            *(() if checked is None else checked.sections),
        ],
        next=f"offline check {uri}" if checked is None else checked.next,
        places=_existing(dataset.location.child(f"{CARDS}/{manifest.version:06d}")),
        ancestors=outline(lineage(uri, manifest.version)),
    )


def policy_card(uri: str) -> Card:
    """Network, spaces, scores and lineage of a policy; of the best one, what its training says, and its other policies."""
    uri, policy = find_policy(uri)
    location = Location.of(uri)
    training = location.parent
    is_best = posixpath.basename(location.uri) == BEST
    file = training.child(RESULT_FILE)
    result = read_result(file) if is_best and file.is_file() and is_result(file) else None
    told = (
        played(policy.metrics) if {"episode_return_mean", "episode_return_std", "episodes"} <= policy.metrics.keys() else None
    )
    described: dict[str, object] = {
        "Made": f"fingerprint {policy.fingerprint}, {policy.created_at:%Y-%m-%d %H:%M} UTC",
        "Environment": policy.environment.id if policy.environment else "not said",
        "Observations": str(space_from_json(policy.observation_space)),
        "Actions": str(space_from_json(policy.action_space)),
    }
    card = Card(
        "Policy",
        {"Policy": location.uri} | described,
        verdict="grey" if told is None else told.verdict,
        word="Policy" if told is None else told.word,
        sentence="" if told is None else told.sentence,
        places=_existing(training.child("card")),
    )
    if result is not None:
        card = result.card()
    return dataclasses.replace(
        card,
        details={
            **({} if result is None else described),
            **card.details,
            **{name.capitalize(): text for name, text in made_by(policy.operation, policy.provenance).items()},
            "Network": policy.network.model_dump_json(),
            **{name.replace("_", " ").capitalize(): f"{value:,.4g}" for name, value in policy.metrics.items()},
        },
        sections=[*card.sections, *([_series(training)] if is_best else [])],
        ancestors=outline(lineage(uri)),
    )


def _existing(place: Location) -> list[str]:
    return [place.uri] if place.parent.child(f"{posixpath.basename(place.uri)}.html").is_file() else []


def _files(dataset: Dataset) -> Section:
    files = dataset.manifest.files
    rows: list[tuple[object, ...]] = [
        (file.path, file.rows, file.episodes, file.steps, size_text(file.bytes)) for file in files[:MAX_FILES]
    ]
    if len(files) > MAX_FILES:
        rows.append((f"… {len(files) - MAX_FILES:,} more", "", "", "", ""))
    return Section("Files", columns=("file", "rows", "episodes", "steps", "size"), rows=rows)


def _statistics(
    statistics: Mapping[str, ColumnStatistics], made_of: InputColumns | None
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """(columns, rows) of a table."""
    rows: list[tuple[object, ...]] = [
        (label, *map(_number_text, numbers), f"{lost:,}" if lost else "")
        for label, numbers, lost in column_rows(statistics, made_of)
    ]
    return ("column", *COLUMN_NUMBERS, "not finite"), rows


def _series(training: Location) -> Section:
    """The policies in the folder of a training, in order of their updates."""
    kept = [(str(number), each.checkpoint) for number, each in enumerate(series_of(training), start=1)]
    ends = [(name, training.child(name).uri) for name in (BEST, LAST) if training.child(name).child(POLICY_FILE).is_file()]
    rows = []
    for name, uri in (*kept, *ends) if kept or len(ends) > 1 else ():  # an expert leaves its best only
        metrics = read_policy_manifest(uri).metrics
        numbers = [metrics.get(metric) for metric in ("updates", "episode_return_mean", "held_out_loss")]
        rows.append((name, *("–" if number is None else f"{number:,.6g}" for number in numbers), uri))
    return Section("Policies to choose from", columns=("policy", "updates", "return", "held-out loss", "path"), rows=rows)


def _runs(sweep: SweepResult) -> Section:
    """The policies of a sweep, the best setting first."""
    runs = [(setting.name, run) for setting in sweep.settings for run in setting.runs]
    rows = [
        (number, name, str(run.seed), f"{run.score:,.4g}", run.checkpoint) for number, (name, run) in enumerate(runs, start=1)
    ]
    columns = ("policy", "setting", "seed", sweep.score.replace("_", " "), "path")
    return Section("Policies to choose from", columns=columns, rows=rows)


def _number_text(number: float | str | None) -> str:
    if isinstance(number, str):
        return number
    return "–" if number is None else f"{number:,.4g}"
