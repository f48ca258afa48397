"""Reads a dataset for an estimate: what was recorded, and how probable it is to the policy and to the behaviour."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from offline_core.data.datasets.dataset import Dataset, not_imported
from offline_core.data.datasets.row_group import prefetch_tables
from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.data.episodes.index import first_parts
from offline_core.data.episodes.nested import Nested
from offline_core.errors import EmptyDatasetError, SchemaError
from offline_core.judging.estimation.observations import Observations, tensors_of
from offline_core.judging.estimation.target import TargetPolicy, columns_read, distribution_inputs
from offline_core.judging.estimation.trajectories import spooled
from offline_core.learning.prelearner.connectors import Pipeline
from offline_core.learning.prelearner.mapper import Mapper
from offline_core.policies.head import Head
from offline_core.policies.heads import CompositeHead
from offline_core.policies.policy import Policy
from offline_core.policies.squashed import SquashedGaussianHead
from offline_core.runtime.progress import progress
from offline_core.runtime.reporting.card import command

LOG_RATIOS = "log_ratios"
"""(R, policies) float64 log π(a|s) - log b(a|s); 0 where no method asks for it."""
LOG_BEHAVIOUR = "log_behaviour"
"""(R,) float64 log b(a|s); 0 where no method asks for it."""
MOST_LOG = 1e-3
"""Largest logarithm of a probability: it is above 0 by no more than rounding."""


class Ends(NamedTuple):
    """Where E recordings end."""

    lengths: np.ndarray
    """(E,) steps."""
    terminated: np.ndarray
    """(E,) bool: nothing follows."""

    def cut_to(self, horizon: int | None) -> Ends:
        """Where the recordings end without the steps that do not count."""
        if horizon is None:
            return self
        return Ends(np.minimum(self.lengths, horizon), self.terminated & (self.lengths <= horizon))


def inputs_of(number: int) -> str:
    """Name of the column (R, inputs) float32 of a policy's distribution."""
    return f"inputs {number}"


@dataclass(frozen=True)
class LogReader:
    """Reads the E episodes of a log that have a step, in their order, as estimates of several policies take them.

    They are without the steps that do not count, of which N are left. Columns are `rewards` (float64), `terminateds`,
    `LOG_RATIOS` and `LOG_BEHAVIOUR`. Where a Q function sees them, `obs`, `actions` and `inputs_of` each policy are there, too,
    and the last observations.

    Raises:
        SchemaError: no probabilities of the actions are known, or not in one number a step; or there is no manifest.
        SpaceError, NonFiniteError, CorruptFileError: the data is not what it has to be.
    """

    dataset: Dataset
    policies: Sequence[TargetPolicy]
    """Their observations are equal."""
    horizon: int | None = None
    """Steps of an episode that count; None: all."""
    rewards: np.ndarray | None = None
    """Of all recorded steps, in the place of those that were recorded."""
    weighs: bool = False
    """A method asks for log-ratios."""
    behaviour: Policy | None = None
    """The policy that acted; None: by the recorded `action_logp`."""
    explore: bool = True
    """See `log_probabilities`."""
    reaches_bounds: bool = False
    """See `log_probabilities`; True if the behaviour squashed, too: then both give an action at a bound the same density."""

    def read(self, steps: int, seen: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, EpisodeBatch | None]:
        """(rewards (N,), log-ratios (policies, N), episodes that Q functions are fitted to).

        Memory: that of these episodes, and of a row group.

        Arguments:
            steps: N.
            seen: (E,) bool, which ones Q functions are fitted to; None: no method fits one.
        """
        paid, log_ratios, kept, begin, step = spooled(steps), spooled(len(self.policies), steps), _Joined(), 0, 0
        with contextlib.closing(self.batches(seen=seen is not None)) as batches:
            for batch in batches:
                if seen is not None and (chosen := seen[begin : begin + batch.num_episodes]).any():
                    kept.add(batch if chosen.all() else batch.select(chosen))
                paid[step : step + len(batch)] = batch.of_steps(columns.REWARDS)
                log_ratios[:, step : step + len(batch)] = batch.of_steps(LOG_RATIOS).T
                begin, step = begin + batch.num_episodes, step + len(batch)
        return paid, log_ratios, None if seen is None else kept.batch()

    def batches(self, *, seen: bool) -> Generator[EpisodeBatch]:
        """All episodes, a row group at a time.

        Arguments:
            seen: with the columns that Q functions see.
        """
        if self.dataset.is_foreign:
            raise not_imported(self.dataset.location.uri)
        by_column = self.weighs and self.behaviour is None
        with self.dataset.reading():
            if by_column:
                check_probabilities(self.dataset)
            step = 0
            with contextlib.closing(step_batches(self.dataset, self.policies, by_column, seen)) as batches:
                for batch in batches:
                    weighed = self._weighed(batch, seen=seen)
                    if self.rewards is not None:
                        paid = np.zeros(batch.rows)
                        paid[batch.is_step] = self.rewards[step : step + len(batch)]
                        weighed |= {columns.REWARDS: paid}
                    step += len(batch)
                    yield cut_to(weighed, self.horizon)

    def _weighed(self, batch: EpisodeBatch, *, seen: bool) -> EpisodeBatch:
        observations = Observations(batch, self.policies[0].observation_space)
        inputs = [distribution_inputs(policy, observations) for policy in self.policies]
        ratios, acted = np.zeros((batch.rows, len(self.policies))), np.zeros(batch.rows)
        if self.weighs:
            taken = tensors_of(batch, columns.ACTIONS, self.policies[0].action_space)
            if self.behaviour is None:
                acted = recorded_logs(batch, self.dataset.location.uri)
            else:
                said = distribution_inputs(self.behaviour, observations)
                acted = log_probabilities(self.behaviour, said, taken, explore=True).numpy()
            options = {"explore": self.explore, "reaches_bounds": self.reaches_bounds}
            for number, policy in enumerate(self.policies):
                ratios[:, number] = log_probabilities(policy, inputs[number], taken, **options).numpy() - acted
        rewards, terminateds = (batch[name].reshape(batch.rows) for name in (columns.REWARDS, columns.TERMINATEDS))
        leaves = {columns.REWARDS: rewards.astype(np.float64), columns.TERMINATEDS: terminateds.astype(bool)}
        leaves |= {LOG_RATIOS: ratios, LOG_BEHAVIOUR: acted}
        if seen:
            leaves |= batch.leaves(columns.OBS, columns.ACTIONS)
            leaves |= {inputs_of(number): tensor.numpy() for number, tensor in enumerate(inputs)}
        return replace(batch, columns=leaves)


class _Joined:
    """Batches that are joined as they come, into arrays that grow where they are: nothing is there twice at the end."""

    def __init__(self) -> None:
        self._columns: dict[str, np.ndarray] = {}
        self._episodes: list[EpisodeBatch] = []
        self._rows = 0

    def add(self, batch: EpisodeBatch) -> None:
        begin, self._rows = self._rows, self._rows + batch.rows
        for name, leaf in batch.columns.items():
            column = self._columns.get(name, np.empty((0, *leaf.shape[1:]), leaf.dtype))
            if (dtype := np.promote_types(column.dtype, leaf.dtype)) != column.dtype:
                column = column.astype(dtype)
            column.resize((self._rows, *column.shape[1:]), refcheck=False)
            column[begin:] = leaf
            self._columns[name] = column
        self._episodes.append(replace(batch, columns={}))

    def batch(self) -> EpisodeBatch | None:
        """All batches joined; None if there is none."""
        return EpisodeBatch.concatenate(self._episodes) | self._columns if self._episodes else None


def cut_to(logged: EpisodeBatch, horizon: int | None) -> EpisodeBatch:
    """The same episodes without the steps that do not count."""
    return logged if horizon is None or (logged.lengths <= horizon).all() else logged.head(horizon)


def read_parts(dataset: Dataset) -> tuple[np.ndarray, np.ndarray, Ends]:
    """Of the E episodes of a `LogReader`: what `first_parts` says, which ones begin after the first step, and how they end.

    Raises:
        EmptyDatasetError: there is no step.
    """
    with dataset.reading():
        index = dataset.index([columns.EPS_ID, columns.T_STARTED, columns.LENGTH, columns.TERMINATED])
    index = index.filter(pl.col(columns.LENGTH) > 0)
    if index.is_empty():
        raise EmptyDatasetError(f"{dataset.location.uri} holds no steps to estimate from.", uri=dataset.location.uri)
    first = first_parts(index)
    begins_late = (first != np.arange(len(first))) | (index[columns.T_STARTED].to_numpy() > 0)
    return first, begins_late, Ends(index[columns.LENGTH].to_numpy(), index[columns.TERMINATED].to_numpy())


def step_batches(
    dataset: Dataset, policies: Sequence[TargetPolicy], by_column: bool, needs_next_obs: bool
) -> Generator[EpisodeBatch]:
    """Whole episodes, flat, with what these policies of the same spaces need; without those that have no step."""
    wanted = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS, *([columns.ACTION_LOGP] if by_column else []))
    wanted = (*wanted, *columns_read(policies))
    pipeline = Pipeline.of((), (policies[0].observation_space, policies[0].action_space))
    mapper = Mapper(None, dataset.manifest.format, wanted, needs_next_obs, dataset.location.uri, pipeline)
    names = mapper.stored_columns()
    assert names is not None
    with progress(dataset.ref.steps, what="weigh", unit="step") as bar:
        for table in prefetch_tables(list(dataset.row_groups(names)), names):
            batch = mapper(table)
            if batch.rows:
                yield batch
                bar.update(len(batch))


def recorded_logs(batch: EpisodeBatch, uri: str) -> np.ndarray:
    """(R,) float64 recorded log-probabilities of a batch.

    Raises:
        SchemaError: They are not one number a step, or cannot be logarithms of probabilities.
    """
    logs = batch[columns.ACTION_LOGP]
    if logs.size != len(logs):
        raise SchemaError(
            f"{uri}: Column {columns.ACTION_LOGP} has values of shape {logs.shape[1:]} a step; it has to be one number, of the "
            "whole action. Sum them up over its components before the import.",
            uri=uri,
            column=columns.ACTION_LOGP,
        )
    logs = logs.reshape(len(logs)).astype(np.float64)
    _check_logs(logs, batch, uri)
    return logs  # type: ignore[no-any-return]


def _check_logs(logs: np.ndarray, batch: EpisodeBatch, uri: str) -> None:
    """Check that numbers can be the logarithms of how probable choices were; densities of numbers may be above 1.

    Arguments:
        logs: (R,) float64 of the rows of a batch.

    Raises:
        SchemaError: One is above 0, and the actions are choices.
    """
    numbers, rows = logs[batch.is_step], np.flatnonzero(batch.is_step)
    is_choice = all(leaf.dtype.kind in "iub" for leaf in batch.leaves(columns.ACTIONS).values())
    if not is_choice or not (wrong := numbers > MOST_LOG).any():
        return
    row = int(rows[wrong.argmax()])
    episode = int(batch.episode[row])
    if ((numbers > 0) & (numbers <= 1)).all():
        cure = "All are between 0 and 1, as probabilities are, and not their logarithms: take ln() of the column at import."
    elif (numbers >= 0).all():
        cure = "All are 0 or more, as logarithms are whose sign was turned: turn it again at import."
    else:
        cure = "Import the column that says how probable the action was, and take its logarithm once."
    raise SchemaError(
        f"{uri}, episode {episode if batch.eps_ids is None else batch.eps_ids[episode]}, step {row - batch.offsets[episode]}: "
        f"{columns.ACTION_LOGP} is {logs[row]:.6g}, the logarithm of a probability above 1, and so are {wrong.sum():,} of "
        f"{len(numbers):,} that were read together. {cure}",
        uri=uri,
        column=columns.ACTION_LOGP,
    )


def check_probabilities(dataset: Dataset) -> None:
    """Check that the episodes of a dataset hold the probabilities of their actions.

    Raises:
        SchemaError: They do not.
    """
    if not has_probabilities(dataset):
        raise SchemaError(
            f"{dataset.location.uri} has no column {columns.ACTION_LOGP}, so the probabilities of its actions are unknown. "
            "Record with keep_action_distribution, or map the column that says it at import; or else name the policy that "
            "acted, or a clone of it (offline train, algorithm bc, on other episodes), by 'behaviour'. What clones it by "
            f"itself: {command('offline', 'decide', dataset.location.uri)} POLICY"
        )


def has_probabilities(dataset: Dataset) -> bool:
    """Whether the episodes of a dataset hold the probabilities of their actions."""
    first = dataset.first_episode()
    return first is None or columns.ACTION_LOGP in first.extras


@torch.no_grad()
def log_probabilities(
    policy: TargetPolicy, inputs: Tensor, actions: Nested, *, explore: bool, reaches_bounds: bool = True
) -> Tensor:
    """(B,) float64 log-probabilities of nested actions (B, …), out of distribution inputs (B, inputs).

    Arguments:
        explore: the policy samples its actions. Otherwise it takes the most likely one, which then has 0 and all others
            -inf. In a Box only a policy that samples has densities.
        reaches_bounds: to a squashed Gaussian an action at a bound counts as one right next to it, as it has no other
            density there. Otherwise it has -inf: a policy that clips is at a bound with some probability, and a squashed one
            with none.
    """
    if explore:
        logs = policy.head.log_prob(inputs, actions).double()
        return logs if reaches_bounds else logs.masked_fill(_beyond_reach(policy.head, actions, len(logs)), -torch.inf)
    same = [
        (chosen == taken).flatten(1).all(dim=1) if taken.ndim > 1 else chosen == taken
        for chosen, taken in zip(nested.leaves(policy.head.mode(inputs)), nested.leaves(actions), strict=True)
    ]
    taken = functools.reduce(torch.logical_and, same)
    return torch.zeros(len(taken), dtype=torch.float64).masked_fill(~taken, -torch.inf)


def _beyond_reach(head: Head, actions: Nested, count: int) -> Tensor:
    """(B,) bool: a component of the actions is at a bound that a squashed Gaussian only comes close to."""
    beyond = torch.zeros(count, dtype=torch.bool)
    if isinstance(head, CompositeHead):
        for part, key in zip(head.parts, head.keys, strict=True):
            beyond |= _beyond_reach(part, actions[key], count)
    elif isinstance(head, SquashedGaussianHead):
        flat = actions.reshape(count, head.size)
        beyond |= (((flat <= head.low) | (flat >= head.high)) & (head.low < head.high)).any(dim=1)
    return beyond
