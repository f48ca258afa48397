"""Damage: single bits flipped in everything that is kept and read again.

Data files, manifests, what appends go on from, scores of outliers, reports, results, decisions, tags, moves of a registry,
checkpoints, networks, training states and metrics.

    python -m benchmarks.bit_flips [--flips 2000] [--seed 0]

Each flip ends as an error of our tree, as something that is not used (and made again), as what was written, or silently as
something else. Of the last there must be none.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import pyarrow as pa
import safetensors.torch
import torch

from benchmarks.figure import figure
from offline_core.data.curation.scores import SCORES, scores_of, write_scores
from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.dataset import open_dataset, size_and_hash
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.result_cache import RESULT_FILE, load_result, store_result
from offline_core.data.datasets.tags import FOLDER as TAGS
from offline_core.data.datasets.tags import read_tags, tag_moves, write_tag
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.codecs import Format
from offline_core.data.importing.imported import Imported, SourceFile, read_late, write_late
from offline_core.data.quality.check import check, last_report
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import QualityReport
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.keeping.promotion.promote import promote, read_decision
from offline_core.learning.checkpoints import load_networks, save_networks
from offline_core.learning.metrics import METRICS_FILE, MetricsLog, read_metrics
from offline_core.learning.result import NETWORKS_FILE
from offline_core.learning.state import States, TrainingState
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.manifest import fingerprint_of, read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.policies.registry import HISTORY, entry_of, read_history
from tests.keeping.promotion.decisions import decision_at

EPISODES = 20
STEPS = 50
SPACES: dict[str, Any] = {
    "observation_space": gym.spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "action_space": gym.spaces.Discrete(2),
}

Outcome = Literal["error", "not used", "same", "silent"]


class Target(NamedTuple):
    """A file, and how what it means is read; None is what is not used."""

    kind: str
    path: Path
    read: Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # each result that is not used is one
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        counts = outcomes(Path(root), arguments.flips, seed=arguments.seed)
    for kind in sorted({kind for kind, _ in counts}):
        figure("flips.silent", counts[kind, "silent"], "flips", of=kind, **_counts(counts, kind))
    silent = sum(count for (_, outcome), count in counts.items() if outcome == "silent")
    figure("flips.silent", silent, "flips", of="all", flips=arguments.flips)


def outcomes(root: Path, flips: int, *, seed: int) -> Counter[tuple[str, Outcome]]:
    """Count the outcomes of flips, by the kind of the file; the files are written below `root`, and get equally many."""
    targets = list(_targets(root))
    before = [target.read() for target in targets]
    rng, counts = random.Random(seed), Counter[tuple[str, Outcome]]()
    for number in range(flips):
        target, whole = targets[number % len(targets)], before[number % len(targets)]
        bit = rng.randrange(8 * target.path.stat().st_size)
        with _flipped(target.path, bit):
            counts[target.kind, _outcome(target, whole)] += 1
    return counts


def _outcome(target: Target, whole: Any) -> Outcome:
    try:
        read = target.read()
    except OfflineError:
        return "error"
    if read == whole:
        return "same"
    return "not used" if read is None else "silent"


@contextlib.contextmanager
def _flipped(path: Path, bit: int) -> Iterator[None]:
    """The file with that bit flipped, inside the block."""
    whole = path.read_bytes()
    data = bytearray(whole)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    yield
    path.write_bytes(whole)


def _targets(root: Path) -> Iterator[Target]:
    for format in ("episodes", "table"):
        uri = _dataset(root / format, format)
        [data] = (root / format).glob("*.parquet")
        yield Target(f"data ({format})", data, lambda uri=uri: [_plain(table) for table in open_dataset(uri).tables()])
        yield Target("manifest", root / format / "_versions" / "000001.json", lambda uri=uri: open_dataset(uri).manifest)
    report = check(QualityConfig(), dataset=uri)
    yield Target("report", root / "table" / "_checks" / "000001.json", lambda: last_report(open_dataset(uri)))

    torch.manual_seed(0)
    policy = str(root / "policy")
    save_policy(Policy(**SPACES), policy, operation=Operation(name="benchmark"))
    [weights] = (root / "policy").glob("*.safetensors")
    yield Target("policy.json", root / "policy" / "policy.json", lambda: read_policy_manifest(policy))
    yield Target("weights", weights, lambda: safetensors.torch.save(load_policy(policy).state_dict()))

    states = States(Location.of(str(root)), run="benchmark")
    states.save(TrainingState(run="benchmark", updates=7, metrics={"loss": 0.25}), {"weights": torch.randn(4, 64)})
    [state], [tensors] = (root / "checkpoints").glob("*.json"), (root / "checkpoints").glob("*.safetensors")
    for kind, path in (("state", state), ("tensors", tensors)):
        yield Target(kind, path, lambda: _state(states))

    location = Location.of(str(root / "result.json"))
    store_result(location, "benchmark", report, fingerprints={policy: read_policy_manifest(policy).fingerprint})
    made = root / "result.json"
    yield Target("result", made, lambda: load_result(location, "benchmark", QualityReport, fingerprint=fingerprint_of))

    yield from _judged(root, uri)
    yield from _moved(root, uri)
    yield from _learned(root)
    yield from _appended(root)


def _judged(root: Path, data: str) -> Iterator[Target]:
    """Scores of episodes, and a decision."""
    dataset = open_dataset(data)
    location = Location.of(str(root / "outliers"))
    index, score = dataset.index([columns.EPS_ID, columns.T_STARTED]), np.linspace(0, 5, EPISODES)
    features = np.random.default_rng(0).random((EPISODES, 2))
    write_scores(location.child(SCORES), dataset, index, score, score > 3, [""] * EPISODES, ["a", "b"], features)
    report = last_report(dataset)
    assert report is not None
    store_result(
        location.child(RESULT_FILE),
        "benchmark",
        report,
        fingerprints={location.child(SCORES).uri: _sha256(location.child(SCORES))},
    )
    for kind, name in (("scores", SCORES), ("result of scores", RESULT_FILE)):
        yield Target(kind, root / "outliers" / name, lambda: scores_of(location.uri, dataset).table.rows())
    decision = decision_at(root / "decision", str(root / "policy"))
    yield Target("decision", root / "decision" / RESULT_FILE, lambda: read_decision(decision))


def _moved(root: Path, data: str) -> Iterator[Target]:
    """Tags of a dataset, and aliases of a registry."""
    location = Location.of(data)
    write_tag(location, "good", 1)
    write_tag(location, "audited", 1)
    for number in (1, 2):
        file = root / "table" / TAGS / f"{number:06d}.json"
        yield Target("tags", file, lambda: (read_tags(location), tag_moves(location)))
    entry = entry_of(str(root / "registry" / "hvac"))
    for seed in (1, 2):
        champion = str(root / "champions" / str(seed))
        save_policy(Policy(**SPACES, seed=seed), champion, operation=Operation(name="benchmark"))
        promote(PromotionConfig(override="a benchmark"), registry=entry.uri, source=champion)
    for number in (1, 2):
        yield Target("moves", root / "registry" / "hvac" / HISTORY / f"{number:06d}.json", lambda: read_history(entry).moves)


def _learned(root: Path) -> Iterator[Target]:
    """Metrics of a run, and all its networks."""
    run = Location.of(str(root / "run"))
    with MetricsLog(run) as log:
        for number in range(20):
            log.add({"updates": number, "loss": 1 / (number + 1)})
    yield Target("metrics", root / "run" / METRICS_FILE, lambda: read_metrics(run))
    networks = torch.nn.ModuleDict({"actor": torch.nn.Linear(4, 16)})
    sha256 = save_networks(networks, run)
    yield Target("networks", root / "run" / NETWORKS_FILE, lambda: safetensors.torch.save(load_networks(run, sha256)))


def _appended(root: Path) -> Iterator[Target]:
    """What appends go on from: rows that wait for late ones, and the manifest that lists them."""
    location = prepare_dataset(str(root / "appended"))
    rows = pa.table({"eps_id": ["a"] * 50, "t": range(50), "rewards": np.random.default_rng(0).random(50)})
    late = write_late(location, "rows", rows)
    with EpisodeWriter(location, "part", format="table") as writer:
        writer.write(_episodes())
    statistics, imported = writer.statistics, Imported(left_out=[late], sources=[SourceFile(uri="/logs/1.csv", bytes=100)])
    operation = Operation(name="import")
    made = commit(
        location.uri, writer.files, format="table", operation=operation, statistics=statistics, kept=imported.kept, **SPACES
    )
    yield Target("append's rows", root / "appended" / late.path, lambda: read_late(location, late).to_pydict())
    manifest = root / "appended" / "_versions" / "000001.json"
    yield Target("append's manifest", manifest, lambda: Imported.of(open_dataset(made.location.uri).manifest))


def _sha256(location: Location) -> str:
    return size_and_hash(location)[1]


def _plain(table: Any) -> Any:
    return table.schema.to_string(), table.to_pydict()


def _state(states: States) -> Any:
    latest = states.latest()
    return latest and (latest[0], safetensors.torch.save(latest[1]))


def _episodes() -> list[Episode]:
    rng = np.random.default_rng(0)
    return [
        Episode(
            eps_id=f"{number:032x}",
            observations=rng.standard_normal((STEPS + 1, 4)).astype(np.float32),
            actions=rng.integers(0, 2, STEPS),
            rewards=rng.random(STEPS),
            extras={"action_logp": rng.standard_normal(STEPS).astype(np.float32)},
            truncated=True,
            **SPACES,
        )
        for number in range(EPISODES)
    ]


def _dataset(folder: Path, format: Format) -> str:
    with EpisodeWriter(prepare_dataset(str(folder)), "part", format=format) as writer:
        writer.write(_episodes())
    operation = Operation(name="benchmark")
    commit(os.fspath(folder), writer.files, format=format, operation=operation, statistics=writer.statistics, **SPACES)
    return os.fspath(folder)


def _counts(counts: Counter[tuple[str, Outcome]], kind: str) -> dict[str, int]:
    return {outcome.replace(" ", "_"): count for (of, outcome), count in sorted(counts.items()) if of == kind}


if __name__ == "__main__":
    main()
