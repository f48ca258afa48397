"""The connectors of a prelearner, built-in and the user's, in the order they run in."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.errors import ConfigError, SchemaError, within
from offline_core.learning.prelearner.config import ConnectorConfig
from offline_core.learning.prelearner.connectors import CheckFinite, CheckSpaces, Connector
from offline_core.runtime.user_code import import_object
from offline_core.runtime.user_errors import user_errors

Spaces = tuple[gym.Space[Any], gym.Space[Any]]

CHECK_SPACES, CHECK_FINITE = "check_spaces", "check_finite"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Connectors, and what they need together."""

    connectors: tuple[Connector, ...]
    spaces: Spaces
    """Of observations and actions after the last connector."""
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
                connectors.append(CheckSpaces(*spaces))
            elif name == CHECK_FINITE:
                connectors.append(CheckFinite())
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
    """The same, if user code returned whole episodes that can be learned from.

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
    """The same, (observation space, action space); raises a ConfigError that names `who` if they are no such pair."""
    if not (isinstance(spaces, tuple) and len(spaces) == 2 and all(isinstance(space, gym.Space) for space in spaces)):
        raise ConfigError(
            f"spaces() of the {who} gives {spaces!r}: it has to give a pair of gymnasium spaces, of observations and actions."
        )
    return spaces
