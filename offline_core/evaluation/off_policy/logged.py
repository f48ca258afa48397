"""Reads a dataset for an estimate: what was recorded, and how probable it is to the policy and to whoever acted."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from offline_core.episodes import columns, decode, nested
from offline_core.episodes.nested import PATH_SEPARATOR
from offline_core.errors import EmptyDatasetError, SchemaError
from offline_core.evaluation.off_policy.observations import Observations, distribution_inputs
from offline_core.evaluation.off_policy.probabilities import log_probabilities
from offline_core.policies.policy import Policy, as_tensors
from offline_core.prelearner.layout import IS_STEP, STARTS
from offline_core.prelearner.mapper import Mapper
from offline_core.prelearner.pipeline import Pipeline
from offline_core.prelearner.prelearner import PreLearner
from offline_core.progress import progress
from offline_core.storage.dataset import Dataset
from offline_core.storage.episode_index import episode_index
from offline_core.storage.parts import first_parts
from offline_core.storage.pieces import pieces, tables_of
from offline_core.storage.reader import schema_of, tables
from offline_core.storage.reading import reading


@dataclass(frozen=True, slots=True)
class Weighing:
    """By what recorded actions are weighed."""

    behaviour: Policy | None
    """The policy that acted; None: what was recorded of it."""
    explore: bool
    """See `log_probabilities`."""
    reaches_bounds: bool = False
    """Likewise: whoever acted squashed, too, so that both say the same of an action at a bound."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the policy sees, and a Q function is fitted to: R = N + E rows, one more an episode for what follows its end."""

    observations: Observations
    actions: dict[str, Tensor]
    """Flat, (R, …) by path; what stands in an episode's last row means nothing."""
    inputs: Tensor
    """(R, inputs) of the policy's distribution."""
    is_step: Tensor
    """(R,) bool"""


@dataclass(frozen=True, slots=True)
class Logged:
    """E episodes of N steps in all."""

    lengths: np.ndarray
    """(E,) int64"""
    rewards: np.ndarray
    """(N,) float64"""
    log_ratios: np.ndarray
    """(N,) float64, 0 where nobody asked for them."""
    terminated: np.ndarray
    """(E,) bool; the others were truncated, or cut off."""
    seen: Seen | None


def read_logged(dataset: Dataset, policy: Policy, weighing: Weighing | None, *, seen: bool) -> Logged:
    """All episodes of a dataset that have a step, in its order.

    Memory: 16 bytes a step, and with `seen` the observations, actions and distribution inputs of all; twice that at the end,
    when what was read file by file becomes one.

    Arguments:
        weighing: None: nobody asks for `log_ratios`.
        seen: `seen` is wanted.

    Raises:
        SchemaError: nobody knows how probable the actions were, or not in one number a step; or these are files of others.
        EmptyDatasetError: there is no step.
        SpaceError, NonFiniteError, CorruptFileError: the data is not what it has to be.
    """
    uri = dataset.location.uri
    if dataset.is_foreign:
        raise SchemaError(
            f"{uri} has no manifest of ours, so an episode may be there twice, or in parts: import it first ('offline import')."
        )
    by_column = weighing is not None and weighing.behaviour is None
    with reading(dataset):
        if by_column and not has_probabilities(dataset):
            raise SchemaError(
                f"{uri} has no column {columns.ACTION_LOGP}, so nobody knows how probable its actions were. Record with "
                "keep_action_distribution, or map the column that says it at import; or else name the policy that acted, or a "
                "clone of it (offline train, algorithm bc), by 'behaviour'."
            )
        with contextlib.closing(_parts(dataset, policy, by_column, seen)) as parts:
            read = [_read(part, policy, weighing, seen, uri) for part in parts]
    if not read:
        raise EmptyDatasetError(f"{uri} holds no steps to estimate from.")
    return Logged(
        lengths=np.concatenate([part.lengths for part in read]),
        rewards=np.concatenate([part.rewards for part in read]),
        log_ratios=np.concatenate([part.log_ratios for part in read]),
        terminated=np.concatenate([part.terminated for part in read]),
        seen=_joined([part.seen for part in read if part.seen is not None], policy) if seen else None,
    )


def read_parts(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Of the E episodes of `read_logged`: (what `first_parts` says (E,), (E,) bool which ones begin after the first step)."""
    with reading(dataset):
        index = episode_index(dataset, [columns.EPS_ID, columns.T_STARTED, columns.LENGTH, columns.TERMINATED])
    index = index.filter(pl.col(columns.LENGTH) > 0)
    first = first_parts(index)
    return first, (first != np.arange(len(first))) | (index[columns.T_STARTED].to_numpy() > 0)


def _parts(dataset: Dataset, policy: Policy, by_column: bool, looks_ahead: bool) -> Generator[dict[str, np.ndarray]]:
    """Flat columns of whole episodes; those without a step are not there."""
    format = dataset.manifest.format
    wanted = [columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS]
    wanted += [columns.ACTION_LOGP] if by_column else []
    given: dict[str, Any] = {"format": format, "wanted": wanted, "looks_ahead": looks_ahead, "where": dataset.location.uri}
    mapper = Mapper(None, given, Pipeline.of((), (policy.observation_space, policy.action_space)))
    names = PreLearner(**given).stored_columns()
    assert names is not None
    with progress(dataset.ref.steps, what="weigh", unit="step") as bar:
        for table in tables_of(pieces(dataset, names), names, together=1):
            part = mapper(table)
            if len(part[STARTS]):
                yield part
                bar.update(int(part[IS_STEP].sum()))


def _read(part: dict[str, np.ndarray], policy: Policy, weighing: Weighing | None, seen: bool, uri: str) -> Logged:
    is_step = part[IS_STEP]
    first = np.flatnonzero(part[STARTS])
    last = np.append(first[1:], len(is_step)) - 1
    actions = {path: tensor for path, tensor in as_tensors(part).items() if _is_of(path, columns.ACTIONS)}
    leaves = {path: tensor for path, tensor in as_tensors(part).items() if _is_of(path, columns.OBS)}
    observations = Observations(leaves, torch.from_numpy(part[STARTS].copy()), policy.observation_space)
    inputs = distribution_inputs(policy, observations)
    ratios = np.zeros(len(is_step))
    if weighing is not None:
        taken = nested.unflatten(actions, columns.ACTIONS, policy.action_space)
        own = log_probabilities(policy, inputs, taken, explore=weighing.explore, reaches_bounds=weighing.reaches_bounds)
        if weighing.behaviour is None:
            ratios = own.numpy() - _recorded_logs(part, uri)
        else:
            acted = distribution_inputs(weighing.behaviour, observations)
            ratios = (own - log_probabilities(weighing.behaviour, acted, taken, explore=True)).numpy()
    return Logged(
        lengths=np.diff(first, append=len(is_step)) - int(seen),
        rewards=part[columns.REWARDS].reshape(len(is_step))[is_step].astype(np.float64),
        log_ratios=ratios[is_step],
        terminated=part[columns.TERMINATEDS].reshape(len(is_step))[last].astype(bool),
        seen=Seen(observations, actions, inputs, torch.from_numpy(is_step.copy())) if seen else None,
    )


def _recorded_logs(part: dict[str, np.ndarray], uri: str) -> np.ndarray:
    """(R,) float64"""
    logs = part[columns.ACTION_LOGP]
    if logs.size != len(logs):
        raise SchemaError(
            f"{uri}: Column {columns.ACTION_LOGP} has values of shape {logs.shape[1:]} a step; it has to be one number, of the "
            "whole action. Sum them up over its components before the import."
        )
    return logs.reshape(len(logs)).astype(np.float64)


def _joined(parts: list[Seen], policy: Policy) -> Seen:
    starts = [torch.zeros(len(part.is_step), dtype=torch.bool).index_fill(0, part.observations.starts, True) for part in parts]
    leaves = {path: torch.cat([part.observations.leaves[path] for part in parts]) for path in parts[0].observations.leaves}
    return Seen(
        observations=Observations(leaves, torch.cat(starts), policy.observation_space),
        actions={path: torch.cat([part.actions[path] for part in parts]) for path in parts[0].actions},
        inputs=torch.cat([part.inputs for part in parts]),
        is_step=torch.cat([part.is_step for part in parts]),
    )


def _is_of(path: str, name: str) -> bool:
    return path.partition(PATH_SEPARATOR)[0] == name


def has_probabilities(dataset: Dataset) -> bool:
    """Whether its episodes say how probable their actions were."""
    if dataset.manifest.format == "table":
        return columns.ACTION_LOGP in schema_of(dataset).names
    first = next((table for table in tables(dataset, [columns.ITEM]) if table.num_rows), None)
    return first is None or columns.ACTION_LOGP in decode(first[columns.ITEM][0].as_py()).extras
