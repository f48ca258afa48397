"""Chooses the numbers of prelearners and learners by a short measurement, and the predicted time of each choice."""

from __future__ import annotations

import itertools
import logging
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from offline_core.data.datasets.row_groups import READ_SECONDS, ROW_GROUP
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.episodes.batch import run_starts
from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.costs import Costs, Processes, choices, ray_resources
from offline_core.learning.data_loader import joined
from offline_core.learning.learner import Learner
from offline_core.learning.prelearner.mapper import without_seconds
from offline_core.learning.run import Run
from offline_core.learning.shards import Shards
from offline_core.learning.source import Read, resident_bytes
from offline_core.learning.steps import Steps
from offline_core.runtime.ray_session import ray_is_up
from offline_core.runtime.torch_settings import torch_threads

log = logging.getLogger(__name__)

READ_LIMIT_SECONDS, UPDATE_LIMIT_SECONDS = 0.5, 0.3
"""Durations of the measurements, which have at least one batch and one update."""
READ_AT_ONCE_BYTES = 64 * 2**20
"""So much is read sooner than prelearners start, however it is stored."""


def costs_of(run: Run, **measured: Any) -> Costs:
    """Add the amount of work of a run to measured costs."""
    buffer, row_groups = run.config.data.buffer, run.source.row_groups
    return Costs(
        steps=run.steps,
        epochs=max(1, math.ceil(run.total_steps / run.epoch_steps)),
        epoch_steps=run.epoch_steps,
        batch_steps=run.config.optimizer.batch_size,
        streamed=run.streamed,
        cores=max(1, int(ray_resources()["CPU"])),  # nodes with CPUs may have left the cluster
        divided=bool(row_groups) and buffer is None,
        most_learners=sys.maxsize if buffer else Shards.of(run.steps).number,
        **measured,
    )


def measured(run: Run) -> Costs:
    """Read a few batches and make a few updates of new networks, in less than two seconds unless reading is slow.

    Raises:
        DataError: The data cannot be read.
        EmptyDatasetError: There are no steps.
    """
    config, networks = run.config, run.networks()
    batches, read_seconds_per_step = _read_some(run.source.training_columns(run.algorithm, through=through_small_tables))
    steps = Steps.of(joined(batches, run.source.origin.ref.uri))
    alone = config.model_copy(
        update={
            "compute": config.compute.model_copy(update={"learners": 0, "compile": False}),
            "data": config.data.model_copy(update={"buffer": None}),  # drawing is not measured
        }
    )
    update_seconds = 0.0  # for a GPU that only other nodes have
    if not config.compute.gpus_per_learner or torch.cuda.is_available():
        with torch_threads(config.compute.threads), torch.random.fork_rng():
            learner = Learner(networks, alone, total_steps=len(steps))
            learner.load(steps)
            indices = learner.indices()
            batch = indices.repeat(math.ceil(learner.batch_units / len(indices)))[: learner.batch_units]
            update_seconds = _seconds_of(lambda: learner.update(batch))
    return costs_of(
        run,
        read_seconds_per_step=read_seconds_per_step,
        update_seconds=update_seconds,
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in networks.parameters()),
        ray_is_up=ray_is_up(),
    )


def through_small_tables(numbers: Sequence[int] | None, read: Read) -> Iterator[pa.Table]:
    """Cut the row groups of a dataset into tables of 1, 2, 4 … whole episodes, so that a measurement can stop early.

    Each has its share of the seconds that reading took. Of other rows only a user's prelearner knows what belongs together, so
    they come as they are read.
    """
    begin = time.perf_counter()
    for table in read(numbers):
        read_seconds = time.perf_counter() - begin
        starts = _episode_starts(table)
        edges = [*starts[(2 ** np.arange(len(starts).bit_length()) - 1)].tolist(), table.num_rows] if table.num_rows else []
        for start, stop in itertools.pairwise(edges):
            seconds = np.zeros(stop - start, np.float32)
            seconds[:1] = read_seconds * (stop - start) / table.num_rows
            yield table.slice(start, stop - start).append_column(READ_SECONDS, pa.array(seconds))
        begin = time.perf_counter()


def _episode_starts(table: pa.Table) -> np.ndarray:
    """Return the rows at which the table may be cut."""
    if ROW_GROUP in table.column_names and columns.ITEM in table.column_names:
        return np.arange(table.num_rows)
    if ROW_GROUP in table.column_names and columns.EPS_ID in table.column_names:
        return run_starts(table[columns.EPS_ID].combine_chunks())
    return np.zeros(1, np.int64)


def _read_some(batches: Iterator[EpisodeBatch]) -> tuple[list[EpisodeBatch], float]:
    """Return the first batches, and the seconds per step of the largest; the very first of several only warms up."""
    batches_read: list[EpisodeBatch] = []
    costs: list[tuple[int, float]] = []
    begin = asked = time.perf_counter()
    for timed in batches:
        batch, read_seconds, prelearner_seconds = without_seconds(timed)
        batches_read.append(batch)
        costs.append((len(batch), read_seconds + prelearner_seconds or time.perf_counter() - asked))
        asked = time.perf_counter()
        if asked - begin > READ_LIMIT_SECONDS and any(steps for steps, _ in costs[1:]):
            break
    steps, seconds = max(costs[1:] if any(steps for steps, _ in costs[1:]) else costs)
    return batches_read, seconds / max(1, steps)


def _seconds_of(update: Callable[[], object]) -> float:
    """Return the median of a few calls after the first, which warms up."""
    update()
    took: list[float] = []
    while sum(took) < UPDATE_LIMIT_SECONDS and len(took) < 30:
        begin = time.perf_counter()
        update()
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def _is_read_at_once(run: Run) -> bool:
    """Whether the data stays in memory, and this process reads it in a few seconds, for no code of a user's is among it."""
    return not run.streamed and not run.source.is_own and resident_bytes(run.source, run.steps) <= READ_AT_ONCE_BYTES


def planned(run: Run) -> Run:
    """Return the run with numbers in place of `auto`, and log why.

    A run that reads and learns in this process is not measured, nor is a data class, which reads by itself, nor what this
    process reads sooner than prelearners start.

    Raises:
        ConfigError: Learners with GPUs cannot be measured, as this process sees none.
    """
    config = run.config
    if config.compute.learners == "auto" and config.compute.gpus_per_learner and not torch.cuda.is_available():
        raise ConfigError("compute.learners=auto is measured in this process, which sees no GPU: set a number.")
    if (config.data.prelearners, config.compute.learners) == (0, 0) or config.data.data_class is not None:
        return replace(run, config=_chosen(config, Processes(0, 0)))
    if config.data.prelearners == "auto" and config.compute.learners != "auto" and _is_read_at_once(run):
        return replace(run, config=_chosen(config, Processes(0, config.compute.learners)))
    costs = measured(run)
    run = replace(run, costs=costs)
    if "auto" not in (config.data.prelearners, config.compute.learners):
        return run
    chosen = costs.best(choices(config, ray_resources()))
    log.info(
        "%s: %s. Measured here: reading %s steps/s, an update of %s steps in %.1f ms; in one process all epochs would take "
        "about %.0f s, so %.0f s",
        run.source.origin.ref.uri,
        _words(chosen),
        f"{1 / max(costs.read_seconds_per_step, 1e-12):,.0f}",
        f"{costs.batch_steps:,}",
        1e3 * costs.update_seconds,
        costs.seconds(Processes(0, 0)),
        costs.seconds(chosen),
    )
    return replace(run, config=_chosen(config, chosen))


def _chosen(config: TrainingConfig, choice: Processes) -> TrainingConfig:
    data, compute = config.data, config.compute
    if data.prelearners == "auto":
        data = data.model_copy(update={"prelearners": choice.prelearners})
    if compute.learners == "auto":
        compute = compute.model_copy(update={"learners": choice.learners})
    return config.model_copy(update={"data": data, "compute": compute})


def _words(choice: Processes) -> str:
    read = f"{choice.prelearners} prelearners read" if choice.prelearners else "this process reads"
    learn = f"{choice.learners} learners learn" if choice.learners else "this process learns"
    return f"{read}, {learn}"
