"""The card of whatever is in a folder: a dataset, a policy, what a stage left, or a registry."""

from __future__ import annotations

import dataclasses
import json
import posixpath
from collections import Counter
from collections.abc import Mapping

from pydantic import RootModel

from offline_core.data.datasets.about import OF_RESULTS, read_about
from offline_core.data.datasets.catalogue import open_catalogue
from offline_core.data.datasets.dataset import Dataset, addressed, is_dataset, open_dataset, versions
from offline_core.data.datasets.dataset_card import CARDS
from offline_core.data.datasets.failure import read_failure
from offline_core.data.datasets.result_cache import RESULT_FILE, is_result
from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.datasets.verify import verify
from offline_core.data.episodes import space_from_json
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.quality.check import last_report
from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError, CorruptFileError
from offline_core.keeping.homepage.facts import COLUMN_NUMBERS, column_rows, dataset_facts, made_by
from offline_core.keeping.stored_results import read_result
from offline_core.policies.config import NetworkConfig
from offline_core.policies.evaluation import EPISODE_METRICS
from offline_core.policies.kind import as_judged
from offline_core.policies.lineage import lineage, outline
from offline_core.policies.manifest import POLICY_FILE, find_policy, read_policy_manifest, registered_policy
from offline_core.policies.registry import History, Move, parse_address, read_registry
from offline_core.policies.series import saved_in, series_of
from offline_core.runtime.config import without_defaults
from offline_core.runtime.reporting.card import Card, Section, command
from offline_core.runtime.reporting.returns import episode_facts, played
from offline_core.runtime.units import count_text, size_text

MAX_FILES = 20
BEST, LAST = "best", "last"
OF_DATASETS = ("Shown", "Episodes", "Steps", "Return", "Length")
"""The facts of a dataset that come first."""


def card_at(uri: str, version: int | None = None) -> Card:
    """What is at a location: a result that a stage stored there, a policy, a training that goes on, or a dataset.

    Pages of it are named where they were kept: calls in Python keep none.

    Raises:
        DatasetNotFoundError: none of these.
    """
    card, location = _card_at(uri, version), Location.of(uri)
    location = location.parent if posixpath.basename(location.uri) in (BEST, LAST) else location
    if (note := read_about(location, OF_RESULTS).description) is not None:
        card = dataclasses.replace(card, facts={**card.facts, "Note": note})
    return dataclasses.replace(card, places=[page for page in card.places if Location.of(f"{page}.html").is_file()])


def _chain_card(location: Location) -> Card:
    """What a chain came to: the last result below its folder."""
    catalogue = open_catalogue(location.uri)
    files = [name for kind in ("result", "evaluation", "estimate") for name in catalogue.shown(kind)]
    last = max(files, key=lambda name: catalogue.files[name].changed_ns or 0, default=None)
    card = Card("Chain", word="Made by a chain", sentence="Its card is a page.", places=[location.child("card").uri])
    try:
        result = None if last is None else read_result(catalogue.location(last))
    except (ValueError, LookupError, TypeError, CorruptFileError):  # of another program, or damaged
        return card
    if result is None:
        return card
    told = result.card()
    return dataclasses.replace(card, verdict=told.verdict, sentence=told.headline)


def _card_at(uri: str, version: int | None) -> Card:
    location, address = Location.of(uri), parse_address(uri)
    if location.uri.endswith(".json") and location.is_file() and (result := read_result(location)) is not None:
        return result.card()
    if (address is not None and address.exists) or location.child(POLICY_FILE).is_file():
        return policy_card(uri)
    file = location.child(RESULT_FILE)
    result = read_result(file) if file.is_file() and is_result(file) else None
    if location.child(BEST).child(POLICY_FILE).is_file():
        return policy_card(location.child(BEST).uri)
    if result is not None:
        return result.card()
    if (failure := read_failure(location)) is not None:
        return Card("Training", verdict="bad", word="Failed", sentence=failure.sentence, sections=[_series(location)])
    if saved_in(location):
        return Card(
            "Training", word="Not finished", sentence=f"{location.uri} runs, or was stopped.", sections=[_series(location)]
        )
    if location.child("card.html").is_file() and not is_dataset(uri):
        return _chain_card(location)
    return dataset_card(uri, version)


def dataset_card(uri: str, version: int | None) -> Card:
    """Versions, content, spaces, files and lineage of a dataset, or of an address of one, and what its last check says."""
    uri, version = addressed(uri, version)
    dataset = open_dataset(uri, version)
    manifest, report = dataset.manifest, last_report(dataset)
    told = {name.capitalize(): text for name, text in dataset_facts(dataset).items()}
    facts = {
        "Dataset": dataset.location.uri,
        "Versions": ", ".join(map(str, versions(uri))) or "none: a folder of Parquet files",
        **{name: told[name] for name in OF_DATASETS if name in told},
        "Size": size_text(dataset.ref.bytes),
    }
    checked = None if report is None else report.card()
    known = manifest.statistics.columns or (report.statistics.columns if report else None)
    unknown = [] if known or dataset.is_foreign else ["They are not known yet; 'offline check' computes them."]
    return Card(
        "Dataset",
        facts,
        verdict="grey" if checked is None else checked.verdict,
        word="Not checked" if checked is None else checked.word,
        sentence="No rule has looked at its steps yet." if checked is None else checked.sentence,
        warnings=() if checked is None else checked.warnings,
        details={name: text for name, text in told.items() if name not in facts},
        sections=[
            _files(dataset),
            Section("Statistics of columns", unknown, *_statistics(known or {}, manifest.input_columns)),
            *(() if checked is None else checked.sections),
        ],
        advice="" if checked is None else checked.advice,
        next=command("offline", "check", uri) if checked is None else checked.next,
        places=[dataset.location.child(f"{CARDS}/{manifest.version:06d}").uri],
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
    is_played = {"episode_return_mean", "episode_return_std", "episodes"} <= policy.metrics.keys()
    told = played(policy.metrics) if is_played else None
    metrics = {name: value for name, value in policy.metrics.items() if not (is_played and name in EPISODE_METRICS)}
    algorithm = policy.operation.config.get("algorithm")
    described: dict[str, object] = {
        **({"Algorithm": algorithm} if isinstance(algorithm, str) else {}),
        "Made": f"fingerprint {policy.fingerprint}, {policy.created_at:%Y-%m-%d %H:%M} UTC",
        "Environment": policy.environment.id if policy.environment else "not said",
        "Observations": str(space_from_json(policy.observation_space)),
        "Actions": str(space_from_json(policy.action_space)),
    }
    card = Card(
        "Policy",
        {"Policy": location.uri} | described | (episode_facts(policy.metrics) if is_played else {}),
        verdict="grey" if told is None else told.verdict,
        word="Policy" if told is None else told.word,
        sentence="" if told is None else told.sentence,
        places=[training.child("card").uri],
    )
    if result is not None:
        card = result.card()
    return dataclasses.replace(
        card,
        details={
            **({} if result is None else described),
            **card.details,
            **{name.capitalize(): text for name, text in made_by(policy.operation, policy.provenance).items()},
            "Network": _network(policy.network),
            **{name.replace("_", " ").capitalize(): f"{value:,.4g}" for name, value in metrics.items()},
        },
        sections=[*card.sections, *([_series(training)] if is_best else [])],
        ancestors=outline(lineage(uri)),
    )


def registry_card(uri: str) -> Card:
    """What the aliases of a registry name, since when, by whom and why; of one name, its history as well.

    Raises:
        CheckpointError: it is no registry, and no name in one.
    """
    histories = _histories(uri)
    aliases, lost = [], []
    for history in histories:
        for alias, move in history.aliases.items():
            uri = history.checkpoint(move).uri
            try:
                registered_policy(history.entry, move)
            except CheckpointError as error:
                lost.append(str(error))
                uri += " (not what was registered)"
            evidence = history.decided_by(move)
            judged = "" if evidence is None or evidence.explore is None else f"it {as_judged(explore=evidence.explore)}"
            aliases.append((f"{history.name}@{alias}", uri, *_told(move), judged))
    moves = [
        (f"{history.name} {move.number}", move.kind, move.alias, move.source, *_told(move))
        for history in histories
        for move in history.moves
    ]
    return Card(
        "Registry",
        word="Registry",
        sentence=f"{count_text(len(aliases), 'alias', 'aliases')} of {count_text(len(histories), 'policy', 'policies')}, "
        f"moved {count_text(len(moves), 'time')}.",
        verdict="bad" if lost else "grey",
        warnings=[*lost, *(told for history in histories for told in history.unsigned)],
        sections=[
            Section("Aliases", columns=("address", "checkpoint", "policy", "moved", "by", "because", "judged"), rows=aliases),
            Section(
                "History",
                columns=("move", "kind", "alias", "copied from", "policy", "moved", "by", "because"),
                rows=moves if len(histories) == 1 else [],
            ),
        ],
    )


def registered(uri: str) -> RootModel[dict[str, dict[str, Move]]]:
    """The last move of each alias, which says what it names, by the names of a registry.

    Raises:
        CheckpointError: it is no registry, and no name in one.
    """
    return RootModel[dict[str, dict[str, Move]]]({history.name: history.aliases for history in _histories(uri)})


def _histories(uri: str) -> list[History]:
    address = parse_address(uri)
    if histories := read_registry(uri if address is None or not address.exists else address.entry.uri):
        return histories
    location = Location.of(uri)
    location.check_bucket()
    raise CheckpointError(f"{location.uri} is no registry, and no name in one. 'offline promote' makes one.")


def _told(move: Move) -> tuple[str, ...]:
    return move.fingerprint, f"{move.moved_at:%Y-%m-%d %H:%M} UTC", move.moved_by, move.because


def verification_card(uri: str, version: int | None = None) -> Card:
    """Whether all that is at a location or below is what was written; reads every byte.

    Raises:
        DatasetNotFoundError: nothing there has hashes.
        VersionNotFoundError: the dataset has no such version.
    """
    compared = [*verify(uri, version)]
    counts = sorted(Counter(comparison.what for comparison in compared).items())
    damaged = [f"{comparison.name}: {'; '.join(comparison.wrong)}" for comparison in compared if comparison.wrong]
    whole = [(comparison.name, comparison.what) for comparison in compared if not comparison.wrong]
    return Card(
        "Verification",
        verdict="bad" if damaged else "good",
        sentence=f"Compared {', '.join(count_text(count, what) for what, count in counts)}: "
        f"{f'{len(damaged):,} damaged' if damaged else 'all as written'}.",
        warnings=damaged,
        sections=[Section("As written", columns=("what", "kind"), rows=whole)],
    )


def _network(network: NetworkConfig) -> str:
    """Its layers, and what is not at its default."""
    values = {name: getattr(network, name) for name in ("hidden_sizes", "activation")} | without_defaults(network)
    return ", ".join(f"{name} {json.dumps(value) if isinstance(value, dict) else value}" for name, value in values.items())


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
    kept = [(str(number), member.checkpoint) for number, member in enumerate(series_of(training), start=1)]
    ends = [(name, training.child(name).uri) for name in (BEST, LAST) if training.child(name).child(POLICY_FILE).is_file()]
    rows = []
    for name, uri in (*kept, *ends) if kept or len(ends) > 1 else ():  # an expert leaves its best only
        metrics = read_policy_manifest(uri).metrics
        numbers = [metrics.get(metric) for metric in ("updates", "episode_return_mean", "held_out_loss")]
        rows.append((name, *("–" if number is None else f"{number:,.6g}" for number in numbers), uri))
    return Section("Policies to choose from", columns=("policy", "updates", "return", "held-out loss", "path"), rows=rows)


def _number_text(number: float | str | None) -> str:
    if isinstance(number, str):
        return number
    return "–" if number is None else f"{number:,.4g}"
