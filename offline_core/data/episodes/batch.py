"""Many steps of many episodes: columns and offsets, the one container that other rooms take and return."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.episode import Episode, return_of
from offline_core.data.episodes.nested import Nested
from offline_core.errors import EpisodeError, SchemaError

STEP_NAMES = (
    columns.EPS_ID,
    columns.T,
    columns.OBS,
    columns.ACTIONS,
    columns.REWARDS,
    columns.NEW_OBS,
    columns.TERMINATEDS,
    columns.TRUNCATEDS,
)
"""Columns that every episode has; its extras come on top."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EpisodeBatch:
    """E episodes, or pieces of them, of N steps in all, one after the other: R rows, one a step.

    Where `has_last`, each episode has one more row at its end, for the observation after its last step, so that what
    follows a step is one row later; what the other columns hold there means nothing. Nothing is copied on construction,
    slicing or access, and no array is written to.
    """

    columns: Mapping[str, Nested]
    """Arrays (R, …) by name: one array, or dicts and tuples of them; see `flat`."""
    offsets: np.ndarray
    """(E+1,) int64: episode i is the rows offsets[i] to offsets[i+1] (exclusive)."""
    has_last: bool = False
    eps_ids: Sequence[str] | None = None
    """E ids, where they are known."""
    t_started: np.ndarray | None = None
    """(E,) the index of each first step within its whole episode; None: 0."""
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None

    @classmethod
    def from_steps(cls, steps: Mapping[str, Nested], lengths: Any, last: Nested | None = None) -> EpisodeBatch:
        """Whole episodes out of columns of N steps.

        Arguments:
            steps: arrays (N, …) by name, the episodes one after the other.
            lengths: (E,) of the episodes in steps, each at least 1.
            last: (E, …), the observations after the last steps, where needed. Other columns repeat their last step there.

        Raises:
            SchemaError: numbers of rows differ, or `last` and the column `obs` in shape.
        """
        lengths = np.asarray(lengths, np.int64)
        if lengths.ndim != 1 or (lengths < 1).any():
            raise SchemaError(f"the lengths of episodes have to be one number each, at least 1, and not {lengths}")
        batch = cls(columns=steps, offsets=np.concatenate([[0], np.cumsum(lengths)]))
        batch.check_rows()
        if last is None:
            return batch
        for path, leaf in nested.flatten(last, "last").items():
            if len(leaf) != len(lengths):
                raise SchemaError(f"{path} has {len(leaf)} rows, the number of episodes is {len(lengths)}")
        offsets = batch.offsets + np.arange(len(lengths) + 1)
        step = np.arange(offsets[-1]) - np.repeat(np.arange(len(lengths)), lengths + 1)
        step[offsets[1:] - 1] -= 1
        extended = {name: nested.map_leaves(lambda leaf: leaf[step], tree) for name, tree in steps.items()}
        if columns.OBS in extended:
            _set_last(extended[columns.OBS], last, offsets[1:] - 1)
        return cls(columns=extended, offsets=offsets, has_last=True)

    @classmethod
    def of(cls, episodes: Sequence[Episode], names: Collection[str] | None = None, *, has_last: bool = False) -> EpisodeBatch:
        """The steps of episodes, joined.

        Arguments:
            names: of `STEP_NAMES` and extras; all that the first episode has if None.
            has_last: with the observations after the last steps; then each episode has at least one step.

        Raises:
            EpisodeError: an episode has no such column, or the episodes do not agree on the structure or shape of one.
        """
        if names is None:
            names = (*STEP_NAMES, *(episodes[0].extras if episodes else ()))
        try:
            steps = {name: step_column(episodes, name) for name in names} if episodes else {}
            ends = [e.get_observations(slice(len(e), len(e) + 1)) for e in episodes] if has_last else []
            last = nested.concatenate(ends) if ends else None
        except KeyError as error:
            raise EpisodeError(f"Some of the episodes have no column {error}.") from error
        except ValueError as error:
            raise EpisodeError(f"Episodes that were read together differ in shape or structure: {error}.") from error
        lengths = [len(episode) for episode in episodes]
        if has_last:
            batch = cls.from_steps(steps, lengths, last)
        else:
            batch = cls(columns=steps, offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
        return replace(
            batch,
            has_last=has_last,
            eps_ids=[episode.eps_id for episode in episodes],
            t_started=np.array([episode.t_started for episode in episodes], np.int64),
            observation_space=episodes[0].observation_space if episodes else None,
            action_space=episodes[0].action_space if episodes else None,
        )

    @classmethod
    def concatenate(cls, batches: Sequence[EpisodeBatch]) -> EpisodeBatch:
        """The episodes of at least one batch, in this order, with the spaces of the first batch."""
        first = batches[0]
        if len(batches) == 1:
            return first
        before = np.cumsum([0, *(batch.rows for batch in batches)])
        ids = [batch.eps_ids for batch in batches]
        t_started = [batch.t_started for batch in batches]
        return replace(
            first,
            columns={name: nested.concatenate([batch.columns[name] for batch in batches]) for name in first.columns},
            offsets=np.concatenate([[0], *(batch.offsets[1:] + rows for batch, rows in zip(batches, before, strict=False))]),
            eps_ids=None if None in ids else [eps_id for batch_ids in ids for eps_id in batch_ids or ()],
            t_started=None if any(starts is None for starts in t_started) else np.concatenate(t_started),  # type: ignore[arg-type]
        )

    def __len__(self) -> int:
        """N, the number of steps."""
        return self.rows - self.has_last * self.num_episodes

    @property
    def rows(self) -> int:
        """R, as many as steps, or with one more for each episode."""
        return int(self.offsets[-1])

    @property
    def num_episodes(self) -> int:
        """E."""
        return len(self.offsets) - 1

    def __getitem__(self, name: str) -> Nested:
        """A column, (R, …)."""
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __or__(self, other: Mapping[str, Nested]) -> EpisodeBatch:
        """The same episodes with these columns added or replaced."""
        return replace(self, columns={**self.columns, **other})

    @cached_property
    def lengths(self) -> np.ndarray:
        """(E,) of the episodes in steps."""
        return np.diff(self.offsets) - self.has_last

    @cached_property
    def episode(self) -> np.ndarray:
        """(R,) the number of the row's episode."""
        return np.repeat(np.arange(self.num_episodes), np.diff(self.offsets))

    @cached_property
    def first(self) -> np.ndarray:
        """(R,) the first row of the row's episode."""
        return self.offsets[:-1][self.episode]  # type: ignore[no-any-return]

    @cached_property
    def is_step(self) -> np.ndarray:
        """(R,) bool: False in the rows that only hold the observation after the last step."""
        mask = np.ones(self.rows, bool)
        if self.has_last:
            mask[self.offsets[1:] - 1] = False
        return mask

    @cached_property
    def steps_left(self) -> np.ndarray:
        """(R,) the steps from this one to the last of its episode, 0 in the row after it."""
        return np.asarray(self.offsets[1:][self.episode] - self.has_last - np.arange(self.rows))

    @cached_property
    def last_steps(self) -> np.ndarray:
        """(E,) the row of each last step; of an episode without steps, the row before its first."""
        return self.offsets[1:] - 1 - self.has_last

    def check_rows(self) -> None:
        """Raises a SchemaError if a column is no array of R rows."""
        for path, leaf in _flat(self.columns).items():
            if not isinstance(leaf, np.ndarray) or leaf.ndim == 0 or len(leaf) != self.rows:
                has = f"{len(leaf)} rows" if isinstance(leaf, np.ndarray) and leaf.ndim else f"a {type(leaf).__name__}"
                raise SchemaError(f"the column {path} has {has}, the episodes have {self.rows}")

    def leaves(self, *names: str) -> dict[str, np.ndarray]:
        """The leaves of columns by path: `obs/position` and the like of `obs`."""
        return {path: leaf for path, leaf in self.columns.items() if path.partition(nested.PATH_SEPARATOR)[0] in names}

    def of_steps(self, name: str) -> Nested:
        """A column without the rows that are no steps, (N, …)."""
        if not self.has_last:
            return self.columns[name]
        return nested.map_leaves(lambda leaf: leaf[self.is_step], self.columns[name])

    def at_end(self, name: str) -> np.ndarray:
        """Return the flag of each last step, (E,) bool; False for an episode without steps."""
        flags = np.zeros(self.num_episodes, bool)
        flags[self.lengths > 0] = self.columns[name][self.last_steps[self.lengths > 0]]
        return flags

    def returns(self) -> np.ndarray:
        """(E,) undiscounted sums of the rewards."""
        rewards, stops = self.columns[columns.REWARDS], self.last_steps + 1
        return np.array([return_of(rewards[a:b]) for a, b in zip(self.offsets[:-1], stops, strict=True)], np.float64)

    def flat(self) -> Self:
        """The same with one array a column, by path: `obs`, or `obs/position`, …"""
        return replace(self, columns=_flat(self.columns))

    def read_only(self) -> Self:
        """Views of the same arrays that refuse to be written to."""
        return self._map(nested.read_only)

    def copy(self) -> Self:
        """Arrays of its own, contiguous and writable."""
        return self._map(np.array)

    def slice(self, start: int, stop: int) -> EpisodeBatch:
        """Episodes `start` to `stop` (exclusive), as views."""
        begin, end = self.offsets[start], self.offsets[stop]
        return self._part(slice(start, stop), self.offsets[start : stop + 1] - begin, lambda leaf: leaf[begin:end])

    def each(self) -> Iterator[EpisodeBatch]:
        """Each episode alone, as views."""
        return (self.slice(number, number + 1) for number in range(self.num_episodes))

    def select(self, chosen: np.ndarray) -> EpisodeBatch:
        """The episodes where `chosen`, (E,) bool, is True."""
        rows = chosen[self.episode]
        lengths = np.diff(self.offsets)[chosen]
        return self._part(chosen, np.concatenate([[0], np.cumsum(lengths)]), lambda leaf: leaf[rows])

    def head(self, steps: int) -> EpisodeBatch:
        """The first steps of each episode, so many at most."""
        rows = np.arange(self.rows) - self.first < steps + self.has_last
        lengths = np.minimum(self.lengths, steps) + self.has_last
        return self._part(slice(None), np.concatenate([[0], np.cumsum(lengths)]), lambda leaf: leaf[rows])

    def episodes(self, details: Sequence[Mapping[str, Any]] | None = None) -> list[Episode]:
        """Return `Episode`s, whose arrays are views; a column that is no field of `Episode` becomes an extra.

        Arguments:
            details: further arguments of each episode, such as its infos.
        """
        observations, extra = self.columns[columns.OBS], 0
        if not self.has_last:
            observations, extra = self._with_last(), 1
        per_step = {name: tree for name, tree in self.columns.items() if name not in STEP_NAMES}
        terminated, truncated = (self.at_end(name).tolist() for name in (columns.TERMINATEDS, columns.TRUNCATEDS))
        episodes = []
        for i, (start, length) in enumerate(zip(self.offsets.tolist(), self.lengths.tolist(), strict=False)):
            rows, seen = slice(start, start + length), slice(start + extra * i, start + extra * i + length + 1)
            episodes.append(
                Episode(
                    eps_id=str(i) if self.eps_ids is None else self.eps_ids[i],
                    observations=nested.map_leaves(lambda leaf: leaf[seen], observations),  # noqa: B023
                    actions=nested.map_leaves(lambda leaf: leaf[rows], self.columns[columns.ACTIONS]),  # noqa: B023
                    rewards=self.columns[columns.REWARDS][rows],
                    extras=nested.map_leaves(lambda leaf: leaf[rows], per_step),  # noqa: B023
                    terminated=terminated[i],
                    truncated=truncated[i],
                    t_started=0 if self.t_started is None else int(self.t_started[i]),
                    observation_space=self.observation_space,
                    action_space=self.action_space,
                    **({} if details is None else details[i]),
                )
            )
        return episodes

    def _with_last(self) -> Nested:
        """All observations, T+1 of each episode, out of `obs` and `new_obs`: episode i begins at offsets[i] + i."""
        ends = self.offsets[1:] - 1

        def join(obs: np.ndarray, new_obs: np.ndarray) -> np.ndarray:
            joined = np.empty((len(obs) + len(ends), *obs.shape[1:]), np.promote_types(obs.dtype, new_obs.dtype))
            joined[np.arange(len(obs)) + self.episode] = obs
            joined[ends + np.arange(len(ends)) + 1] = new_obs[ends]
            return joined

        return nested.map_leaves(join, self.columns[columns.OBS], self.columns[columns.NEW_OBS])

    def _map(self, change: Callable[[np.ndarray], np.ndarray]) -> Self:
        return replace(self, columns={name: nested.map_leaves(change, tree) for name, tree in self.columns.items()})

    def _part(self, chosen: Any, offsets: np.ndarray, rows: Callable[[np.ndarray], np.ndarray]) -> EpisodeBatch:
        return replace(
            self,
            columns={name: nested.map_leaves(rows, tree) for name, tree in self.columns.items()},
            offsets=offsets,
            eps_ids=None if self.eps_ids is None else np.asarray(self.eps_ids, object)[chosen].tolist(),
            t_started=None if self.t_started is None else self.t_started[chosen],
        )


def step_column(episodes: Sequence[Episode], name: str) -> Nested:
    """Column `name` of the step table of `episodes` as arrays, (steps of all, …).

    Raises:
        KeyError: an episode has no such column.
        ValueError: the episodes do not agree on its structure or shape.
    """
    return nested.concatenate([_steps_of(episode, name) for episode in episodes])


def _steps_of(episode: Episode, name: str) -> Nested:
    steps = len(episode)
    match name:
        case columns.EPS_ID:
            return np.full(steps, episode.eps_id)
        case columns.T:
            return np.arange(episode.t_started, episode.t)
        case columns.OBS:
            return episode.get_observations(slice(0, steps))
        case columns.NEW_OBS:
            return episode.get_observations(slice(1, steps + 1))
        case columns.ACTIONS:
            return episode.get_actions()
        case columns.REWARDS:
            return episode.get_rewards()
        case columns.TERMINATEDS | columns.TRUNCATEDS:
            ends = np.zeros(steps, bool)
            ends[-1:] = episode.terminated if name == columns.TERMINATEDS else episode.truncated
            return ends
        case _:
            return episode.get_extra(name)


def check_one_shape(obs: Nested, new_obs: Nested) -> None:
    """Raises a SchemaError if the structures, or the shapes of a step, differ."""
    shapes, new_shapes = (nested.map_leaves(lambda array: array.shape[1:], tree) for tree in (obs, new_obs))
    if shapes != new_shapes:
        raise SchemaError(f"Columns obs and new_obs have steps of different shapes: {shapes} and {new_shapes}.")


def run_starts(values: pa.Array) -> np.ndarray:
    """(E,) int64, the rows that begin a run of equal values."""
    if not len(values):
        return np.zeros(0, np.int64)
    changes = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1))
    return np.append(0, np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1)


def _flat(trees: Mapping[str, Nested]) -> dict[str, np.ndarray]:
    return {path: leaf for name, tree in trees.items() for path, leaf in nested.flatten(tree, name).items()}


def _set_last(tree: Nested, last: Nested, ends: np.ndarray) -> None:
    leaves = nested.flatten(last, columns.OBS)
    for path, leaf in nested.flatten(tree, columns.OBS).items():
        if path not in leaves or leaves[path].shape[1:] != leaf.shape[1:]:
            raise SchemaError(f"obs and new_obs have steps of different shapes in {path}.")
        leaf[ends] = leaves[path]
