"""Connectors: small functions from episode batches to episode batches, composed into training columns by a pipeline."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from pydantic import Field, model_validator

from offline_core.data.environments.vector_env import Spaces
from offline_core.data.episodes import EpisodeBatch, action_masks, columns
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import discrete_bounds
from offline_core.errors import ConfigError, NonFiniteError, SchemaError, SpaceError, within
from offline_core.runtime.python_object import PythonObject
from offline_core.runtime.user_code import UserCode, import_object, user_errors

CHECK_SPACES, CHECK_FINITE = "check_spaces", "check_finite"

Connector: TypeAlias = Callable[[EpisodeBatch], EpisodeBatch]
"""Takes and returns whole episodes, without changing the arrays that it is given.

A user's connector may declare more by attributes of the class or function:

    reads        names of columns that it needs besides those of the algorithm
    adds         names of columns that it makes, which the dataset need not have
    needs_next_obs  True: each episode has one more row, for the observation after its last step
    spaces       method (observation space, action space) → (observation space, action space): the spaces after it
    fingerprint  text that stands for what it depends on besides local files that its arguments name

The result depends on nothing but its arguments and the columns: it is called again for the same steps in each epoch of a
stream, when a killed run resumes, and in other processes.
"""


class ConnectorConfig(UserCode):
    """A user's connector, and its position among the others: check_spaces, check_finite, and user connectors by name."""

    name: str | None = Field(None, description="What others call it; None: by the name of the class or function.")
    before: str | None = Field(None, description="Name of the connector that it runs right before.")
    after: str | None = Field(
        None,
        description="Name of the connector that it runs right after. Without a place it runs before check_spaces, after yours "
        "that are listed earlier, so that what it makes is checked.",
    )

    @model_validator(mode="after")
    def _one_place(self) -> ConnectorConfig:
        if self.before is not None and self.after is not None:
            raise ValueError("a connector runs before another one or after it: give one of the two")
        return self

    @property
    def called(self) -> str:
        """Its name."""
        return self.name or (self.path.name if isinstance(self.path, PythonObject) else self.path.partition(":")[2])


def each_episode(connector: Connector) -> Connector:
    """Make a connector out of one that takes a single episode at a time."""

    @functools.wraps(connector)
    def run(steps: EpisodeBatch, **arguments: Any) -> EpisodeBatch:
        made = [connector(episode, **arguments) for episode in steps.each()]
        if any(batch.columns.keys() != made[0].columns.keys() for batch in made):
            raise SchemaError("some episodes came out with other columns than the first one")
        return EpisodeBatch.concatenate(made) if made else steps

    return run


def check_spaces(steps: EpisodeBatch, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> EpisodeBatch:
    """Refuse observations and actions that do not have the shape of their space, or values outside a discrete one."""
    spaces = {columns.OBS: observation_space, columns.NEW_OBS: observation_space, columns.ACTIONS: action_space}
    for name, space in spaces.items():
        if name in steps:
            _check(name, steps[name], space)
    if columns.OBS in steps and columns.ACTIONS in steps and action_masks.is_masked(observation_space):
        _check_masks(steps, action_space)
    return steps


def check_finite(steps: EpisodeBatch) -> EpisodeBatch:
    """Refuse NaN and infinite numbers in any column."""
    for path, array in steps.flat().columns.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = len(np.unique(np.argwhere(~np.isfinite(array))[:, 0]))
            raise NonFiniteError(
                f"Column {path} is NaN or infinite in {bad} of {len(array)} steps that were read together. "
                "Prune those episodes first, or fix the source.",
                column=path,
            )
    return steps


def _check_masks(steps: EpisodeBatch, action_space: gym.Space[Any]) -> None:
    """Check the masks of all steps with an action, and of what follows the last step unless the episode terminated."""
    masks = steps[columns.OBS][action_masks.ACTION_MASK]
    if problem := action_masks.problem(masks[steps.is_step], steps.of_steps(columns.ACTIONS), action_space):
        wrong, why = problem
        raise SpaceError(
            f"In {int(wrong.sum())} of {len(wrong)} steps that were read together {why}. 'offline check' names them (rule "
            "forbidden_actions): leave them out first, or fix the source."
        )
    if steps.has_last and columns.TERMINATEDS in steps:
        goes_on = ~steps.at_end(columns.TERMINATEDS).astype(bool)
        nothing = action_masks.forbids_all(masks[~steps.is_step], action_masks.choices(action_space)) & goes_on
        if nothing.any():
            raise SpaceError(
                f"{int(nothing.sum())} episodes do not terminate, and the {action_masks.ACTION_MASK} of what follows their "
                "last step allows no action: no value can be learned from that. 'offline check' names them (rule "
                "forbidden_actions)."
            )


def _check(name: str, tree: Nested, space: gym.Space[Any]) -> None:
    match space:
        case gym.spaces.Dict() if isinstance(tree, dict) and tree.keys() == space.spaces.keys():
            for key, child in space.spaces.items():
                _check(f"{name}/{key}", tree[key], child)
            return
        case gym.spaces.Tuple() if isinstance(tree, tuple) and len(tree) == len(space.spaces):
            for i, child in enumerate(space.spaces):
                _check(f"{name}/{i}", tree[i], child)
            return
    if not isinstance(tree, np.ndarray) or tree.shape[1:] != space.shape:
        shape = tree.shape[1:] if isinstance(tree, np.ndarray) else type(tree).__name__
        raise SpaceError(
            f"Column {name} has shape {shape} a step; the space {space} has {space.shape}. Are two datasets mixed?"
        )
    if space.dtype is not None and space.dtype.kind in "biu" and tree.dtype.kind not in "biu":
        raise SpaceError(f"Column {name} is of {tree.dtype}; the space {space} has whole numbers, of {space.dtype}.")
    bounds = discrete_bounds(space)  # those of a Box are often guesses
    if bounds is not None and len(tree):
        low, high = tree.min(axis=0), tree.max(axis=0)
        if (low < bounds[0]).any() or (high > bounds[1]).any():
            raise SpaceError(f"Column {name} has values from {low} to {high}, outside {space}.")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Connectors, and what they need together."""

    connectors: tuple[Connector, ...]
    spaces: Spaces
    """Spaces of observations and actions after the last connector."""
    reads: frozenset[str] = frozenset()
    """Columns that the user's connectors need and none of them makes."""
    adds: frozenset[str] = frozenset()
    """Columns that they make, which a dataset need not have."""
    needs_next_obs: bool = False
    """One of them needs the observation after an episode's last step."""
    fingerprints: tuple[str, ...] = ()
    """What they depend on besides their code and arguments, as they declare it."""

    @classmethod
    def of(cls, own: Iterable[ConnectorConfig], spaces: Spaces) -> Pipeline:
        """The built-in connectors with the user's among them; `spaces` are those before the first.

        Raises:
            ConfigError: one cannot be made, or its place is not there.
        """
        names, user_connectors = [CHECK_SPACES, CHECK_FINITE], dict[str, UserConnector]()
        for config in own:
            if config.called in names:
                raise ConfigError(f"There are two connectors of the name {config.called}; give one another name.")
            if (other := config.before or config.after or CHECK_SPACES) not in names:
                raise ConfigError(f"The connector {config.called} has no place: there is no {other}, but {', '.join(names)}.")
            names.insert(names.index(other) + (config.after is not None), config.called)
            user_connectors[config.called] = UserConnector(config)
        connectors: list[Connector] = []
        for name in names:
            if name == CHECK_SPACES:
                connectors.append(functools.partial(check_spaces, observation_space=spaces[0], action_space=spaces[1]))
            elif name == CHECK_FINITE:
                connectors.append(check_finite)
            else:
                connectors.append(user_connectors[name])
                spaces = user_connectors[name].spaces(spaces)
        adds = frozenset[str]().union(*(connector.adds for connector in user_connectors.values()))
        return cls(
            tuple(connectors),
            spaces,
            reads=frozenset[str]().union(*(connector.reads for connector in user_connectors.values())) - adds,
            adds=adds,
            needs_next_obs=any(connector.needs_next_obs for connector in user_connectors.values()),
            fingerprints=tuple(connector.fingerprint for connector in user_connectors.values() if connector.fingerprint),
        )

    def __call__(self, batch: EpisodeBatch) -> EpisodeBatch:
        """The batch through all connectors, then flat.

        Raises:
            DataError: a connector refuses it or fails.
        """
        for connector in self.connectors:
            if not batch.rows:
                break  # nothing is left
            batch = connector(batch)
        return batch.flat()


class UserConnector:
    """A user's connector: its errors get its name, its result is checked."""

    def __init__(self, config: ConnectorConfig) -> None:
        self.path = str(config)
        self._connector = config.make("connector")
        if not callable(self._connector):
            raise ConfigError(f"The connector {self.path} cannot be called with columns.")
        imported = import_object(config.path, "connector")
        declared = self._connector if inspect.isclass(imported) else imported  # a function has its arguments bound
        self.reads = frozenset(getattr(declared, "reads", ()))
        self.adds = frozenset(getattr(declared, "adds", ()))
        self.needs_next_obs = bool(getattr(declared, "needs_next_obs", False))
        self.fingerprint = str(getattr(declared, "fingerprint", ""))
        self._spaces = getattr(declared, "spaces", None)

    def spaces(self, spaces: Spaces) -> Spaces:
        """The spaces of observations and actions after it."""
        if self._spaces is None:
            return spaces
        with user_errors(f"connector {self.path}", f"with the spaces {spaces}", ConfigError):
            return a_pair(self._spaces(*spaces), f"connector {self.path}")

    def __call__(self, batch: EpisodeBatch) -> EpisodeBatch:
        with user_errors(f"connector {self.path}", f"on {batch.rows:,} rows"):
            result = self._connector(batch.read_only())
        with within(f"The connector {self.path}"):
            return check_batch(result, has_last=batch.has_last)


def check_batch(batch: Any, *, has_last: bool) -> EpisodeBatch:
    """Return the batch, if user code returned whole episodes that can be learned from.

    Raises:
        SchemaError: it did not; the message does not name the code.
    """
    if not isinstance(batch, EpisodeBatch):
        raise SchemaError(f"an EpisodeBatch is needed, and not a {type(batch).__name__}")
    if batch.has_last != has_last:
        needed = "a row" if has_last else "no row"
        raise SchemaError(f"each episode needs {needed} for the observation after its last step (has_last={has_last})")
    if batch.offsets[0] != 0 or (batch.lengths < 1).any():
        raise SchemaError("each episode needs at least one step; offsets begin with 0 and rise")
    batch.check_rows()
    for path, leaf in batch.flat().columns.items():
        if leaf.dtype.kind not in "biuf":
            raise SchemaError(f"the column {path} is of {leaf.dtype}, and not of numbers")
        if path in (columns.TERMINATEDS, columns.TRUNCATEDS) and (leaf.dtype != bool or leaf.ndim != 1):
            raise SchemaError(f"the column {path} is {leaf.dtype} of shape {leaf.shape}; one boolean a row is needed")
    return batch


def a_pair(spaces: Any, who: str) -> Spaces:
    """Return (observation space, action space); raise a ConfigError that names `who` if `spaces` is no such pair."""
    if not (isinstance(spaces, tuple) and len(spaces) == 2 and all(isinstance(space, gym.Space) for space in spaces)):
        raise ConfigError(
            f"spaces() of the {who} gives {spaces!r}: it has to give a pair of gymnasium spaces, of observations and actions."
        )
    return spaces
