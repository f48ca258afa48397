"""One episode, or a piece of one: the unit in which experience is recorded, stored and cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.nested import Nested
from offline_core.errors import EpisodeError, NonFiniteError

Index = int | slice


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Episode:
    """T steps of one environment: T+1 observations, T actions, T rewards.

    Step t is (observations[t], actions[t]) → (rewards[t], observations[t+1]). Arrays may start with `lookback` earlier
    items, which give context (frame stacks, recurrent states) and are not steps of this piece. Nothing is copied on
    construction, slicing or access: arrays are views and are not written to.

    Equality compares contents (NaN equals NaN, no infos equal empty ones), not spaces.
    """

    eps_id: str
    """Identifies the whole episode; its pieces share it."""
    observations: Nested
    """Arrays of shape (lookback+T+1, …): one array, or dicts and tuples of them for Dict and Tuple spaces."""
    actions: Nested
    """Arrays of shape (lookback+T, …), in the units of the environment."""
    rewards: np.ndarray
    """Shape (lookback+T,), in the dtype the environment gave."""
    infos: Sequence[dict[str, Any]] | None = None
    """lookback+T+1 dicts, the first of them from `reset`; None when all are empty."""
    extras: dict[str, Nested] = field(default_factory=dict)
    """Further outputs of the policy per step, by column name (`action_logp`, …), shape (lookback+T, …)."""
    terminated: bool = False
    """The last step reached a terminal state: its value is zero."""
    truncated: bool = False
    """The episode was cut off at the last step, a time limit for example: its value is not zero."""
    t_started: int = 0
    """Index of step 0 within the whole episode; above zero for later pieces."""
    lookback: int = 0
    """Items at the front of every array that come before step 0."""
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    agent_id: str | None = None
    module_id: str | None = None
    custom_data: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """T, the number of steps."""
        return len(self.rewards) - self.lookback

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Episode):
            return NotImplemented
        plain = ("eps_id", "terminated", "truncated", "t_started", "lookback", "agent_id", "module_id")
        arrays = ("observations", "actions", "rewards", "extras")
        return (
            all(getattr(self, name) == getattr(other, name) for name in plain)
            and all(nested.equal(getattr(self, name), getattr(other, name)) for name in arrays)
            and _same(_kept(self.infos), _kept(other.infos))
            and _same(self.custom_data, other.custom_data)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def t(self) -> int:
        """Index, within the whole episode, of the step after the last one."""
        return self.t_started + len(self)

    @property
    def is_done(self) -> bool:
        """No step can follow."""
        return self.terminated or self.truncated

    @property
    def return_(self) -> float:
        """Undiscounted sum of the rewards of this piece."""
        return return_of(self.rewards[self.lookback :])

    @property
    def types(self) -> nested.Types:
        """The types of its observations, actions, rewards and extras."""
        trees = {columns.OBS: self.observations, columns.ACTIONS: self.actions, columns.REWARDS: self.rewards}
        return nested.types_of({**trees, **self.extras})

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        trees = (self.observations, self.actions, self.rewards, self.extras)
        return sum(array.nbytes for tree in trees for array in nested.leaves(tree))

    def get_observations(self, index: Index = slice(None), *, neg_index_as_lookback: bool = False) -> Nested:
        """Observations by index or slice, counted from step 0.

        A negative index counts from the end, as in a list; with `neg_index_as_lookback` it counts back from step 0
        into the lookback, so that -1 is the observation before the first.

        Raises:
            IndexError: the episode (or its lookback) does not reach that far.
        """
        return self._get(self.observations, len(self) + 1, index, neg_index_as_lookback)

    def get_actions(self, index: Index = slice(None), *, neg_index_as_lookback: bool = False) -> Nested:
        """Actions by index or slice; see `get_observations`."""
        return self._get(self.actions, len(self), index, neg_index_as_lookback)

    def get_rewards(self, index: Index = slice(None), *, neg_index_as_lookback: bool = False) -> Any:
        """Rewards by index or slice; see `get_observations`."""
        return self._get(self.rewards, len(self), index, neg_index_as_lookback)

    def get_extra(self, name: str, index: Index = slice(None), *, neg_index_as_lookback: bool = False) -> Nested:
        """One extra output by index or slice; see `get_observations`."""
        return self._get(self.extras[name], len(self), index, neg_index_as_lookback)

    def get_infos(self, index: Index = slice(None), *, neg_index_as_lookback: bool = False) -> Any:
        """Infos by index or slice, empty dicts where none were given; see `get_observations`."""
        position = self._position(len(self) + 1, index, neg_index_as_lookback)
        if self.infos is not None:
            return self.infos[position]
        return {} if isinstance(position, int) else [{} for _ in range(position.start, position.stop, position.step)]

    def _get(self, tree: Nested, count: int, index: Index, neg_index_as_lookback: bool) -> Nested:
        position = self._position(count, index, neg_index_as_lookback)
        return nested.map_leaves(lambda array: array[position], tree)

    def _position(self, count: int, index: Index, neg_index_as_lookback: bool) -> Index:
        first = -self.lookback if neg_index_as_lookback else -count
        if isinstance(index, int | np.integer):
            if not first <= index < count:
                raise IndexError(f"Index {index} is outside {first}..{count - 1} of episode {self.eps_id}.")
            return int(index) + self.lookback + (count if index < 0 and not neg_index_as_lookback else 0)
        if not neg_index_as_lookback:
            start, stop, step = index.indices(count)
        else:
            step = 1 if index.step is None else index.step
            start = max(index.start if index.start is not None else 0, first)
            stop = min(index.stop if index.stop is not None else count, count)
        if step < 1:
            raise IndexError("Episodes are not read backwards: the step of a slice has to be 1 or more.")
        return slice(start + self.lookback, max(start, stop) + self.lookback, step)

    def slice(self, start: int, stop: int, *, lookback: int = 0) -> Episode:
        """Steps `start` to `stop` (exclusive) as a piece with up to `lookback` earlier items, as far as there are any.

        The piece is done only when it ends where this episode ends.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"Steps {start}..{stop} are not within the {len(self)} steps of episode {self.eps_id}.")
        lookback = min(lookback, start + self.lookback)
        first = self.lookback + start - lookback
        last = self.lookback + stop

        def steps(array: np.ndarray) -> np.ndarray:
            return array[first:last]

        ends_here = stop == len(self)
        return replace(
            self,
            observations=nested.map_leaves(lambda array: array[first : last + 1], self.observations),
            actions=nested.map_leaves(steps, self.actions),
            rewards=steps(self.rewards),
            infos=None if self.infos is None else self.infos[first : last + 1],
            extras=nested.map_leaves(steps, self.extras),
            terminated=self.terminated and ends_here,
            truncated=self.truncated and ends_here,
            t_started=self.t_started + start,
            lookback=lookback,
        )

    def concat(self, other: Episode) -> Episode:
        """This piece followed by the next one of the same episode.

        Raises:
            EpisodeError: `other` is not the piece that comes next.
        """
        problems = []
        if other.eps_id != self.eps_id:
            problems.append(f"it belongs to episode {other.eps_id}")
        if self.is_done:
            problems.append("this piece already ends the episode")
        if other.t_started != self.t:
            problems.append(f"it starts at step {other.t_started} and not at {self.t}")
        if self.extras.keys() != other.extras.keys():
            problems.append(f"its extras are {sorted(other.extras)} and not {sorted(self.extras)}")
        elif not problems and not nested.equal(self.get_observations(slice(-1, None)), other.get_observations(slice(0, 1))):
            problems.append("its first observation is not the last one of this piece")
        if problems:
            raise EpisodeError(f"A piece cannot follow episode {self.eps_id}: {'; '.join(problems)}.")

        def join(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            return np.concatenate([left, right[other.lookback :]])

        infos = None
        if self.infos is not None or other.infos is not None:
            before = self.get_infos(slice(-self.lookback, len(self)), neg_index_as_lookback=True)
            infos = [*before, *other.get_infos()]
        return replace(
            self,
            observations=nested.map_leaves(lambda left, right: join(left[:-1], right), self.observations, other.observations),
            actions=nested.map_leaves(join, self.actions, other.actions),
            rewards=join(self.rewards, other.rewards),
            infos=infos,
            extras=nested.map_leaves(join, self.extras, other.extras),
            terminated=other.terminated,
            truncated=other.truncated,
            custom_data=self.custom_data | other.custom_data,
        )

    def length_problems(self) -> list[str]:
        """What is wrong with the lengths of the arrays, if anything: a cheap part of `validate`."""
        if self.rewards.ndim != 1 or self.rewards.dtype.kind not in "biuf":
            return [f"rewards have shape {self.rewards.shape} and dtype {self.rewards.dtype}, not one number a step"]
        if not 0 <= self.lookback <= len(self.rewards):
            return [f"a lookback of {self.lookback} does not fit into {len(self.rewards)} rewards"]
        items = len(self.rewards)
        problems = []
        expected = {"observations": (self.observations, items + 1), "actions": (self.actions, items)}
        expected |= {f"extra {name}": (tree, items) for name, tree in self.extras.items()}
        for what, (tree, count) in expected.items():
            try:
                length = nested.length(tree, what)
            except EpisodeError as error:
                problems.append(str(error).rstrip("."))
                continue
            if length != count:
                problems.append(f"{length} {what} for {len(self)} steps and a lookback of {self.lookback}; {count} expected")
        if self.infos is not None and len(self.infos) != items + 1:
            problems.append(f"{len(self.infos)} infos; {items + 1} expected")
        return problems

    def validate(self) -> Episode:
        """This episode, if it is whole.

        Raises:
            EpisodeError: lengths or spaces contradict each other; the message lists all that is wrong.
            NonFiniteError: an observation, action or reward is NaN, or a reward or action is infinite.
        """
        problems = self.length_problems()
        problems += _space_problems("observations", self.observations, self.observation_space)
        problems += _space_problems("actions", self.actions, self.action_space)
        if problems:
            raise EpisodeError(f"Episode {self.eps_id} is not whole: {'; '.join(problems)}.")
        for what, tree, test in (
            ("observations", self.observations, np.isnan),
            ("actions", self.actions, _not_finite),
            ("rewards", self.rewards, _not_finite),
        ):
            for path, array in nested.flatten(tree, what).items():
                if array.dtype.kind == "f" and (bad := test(array)).any():
                    step = int(np.argwhere(bad)[0][0]) - self.lookback
                    raise NonFiniteError(f"Episode {self.eps_id} has a NaN or infinite value in {path} at step {step}.")
        return self

    def __repr__(self) -> str:
        end = "terminated" if self.terminated else "truncated" if self.truncated else "open"
        return f"<Episode {self.eps_id}: steps {self.t_started}..{self.t}, return {self.return_:g}, {end}>"


def return_of(rewards: np.ndarray) -> float:
    """The undiscounted sum of rewards of shape (T,), the same to the last bit wherever it is taken and in whatever dtype."""
    return float(np.ascontiguousarray(rewards, np.float64).sum())


def _not_finite(array: np.ndarray) -> np.ndarray:
    return ~np.isfinite(array)  # type: ignore[no-any-return]


def _kept(infos: Sequence[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    return list(infos) if infos is not None and any(infos) else None


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return nested.array_equal(np.asarray(left), np.asarray(right))
    return bool(left == right) or (left != left and right != right)


def _space_problems(what: str, tree: Nested, space: gym.Space[Any] | None) -> list[str]:
    match space:
        case None:
            return []
        case gym.spaces.Dict():
            if not isinstance(tree, dict) or tree.keys() != space.spaces.keys():
                return [f"{what} are not a dict of {sorted(space.spaces)}"]
            children = [_space_problems(f"{what}/{key}", tree[key], child) for key, child in space.spaces.items()]
            return [problem for child in children for problem in child]
        case gym.spaces.Tuple():
            if not isinstance(tree, tuple) or len(tree) != len(space.spaces):
                return [f"{what} are not a tuple of {len(space.spaces)}"]
            children = [_space_problems(f"{what}/{i}", tree[i], child) for i, child in enumerate(space.spaces)]
            return [problem for child in children for problem in child]
    if not isinstance(tree, np.ndarray):
        return [f"{what} are {type(tree).__name__} where the space is {space}"]
    shape = space.shape or ()
    if tree.shape[1:] != shape:
        return [f"{what} have shape {tree.shape[1:]} a step where the space {space} has {shape}"]
    return []
