"""The connectors of a prelearner, ours and the user's, in the order they run in."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.episodes import nested
from offline_core.errors import ConfigError, within
from offline_core.own_code import imported
from offline_core.own_errors import own_errors
from offline_core.prelearner.config import ConnectorConfig
from offline_core.prelearner.connectors import CheckFinite, CheckSpaces, Connector
from offline_core.prelearner.layout import IS_STEP, STARTS, Columns, check_layout, read_only

Spaces = tuple[gym.Space[Any], gym.Space[Any]]

CHECK_SPACES, CHECK_FINITE = "check_spaces", "check_finite"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Connectors, and what they come to."""

    connectors: tuple[Connector, ...]
    spaces: Spaces
    """Of the observations and actions that come out."""
    reads: frozenset[str] = frozenset()
    """Columns that the user's connectors need and none of them makes."""
    adds: frozenset[str] = frozenset()
    """Columns that they make, which a dataset need not have."""
    looks_ahead: bool = False
    """One of them needs the observation after an episode's last step."""
    fingerprints: tuple[str, ...] = ()
    """What they depend on beside their code and arguments, as they say it."""

    @classmethod
    def of(cls, own: Iterable[ConnectorConfig], spaces: Spaces) -> Pipeline:
        """Those of the user among ours; `spaces` are of what comes in.

        Raises:
            ConfigError: one cannot be made, or its place is not there.
        """
        names, placed = [CHECK_SPACES, CHECK_FINITE], dict[str, OwnConnector]()
        for config in own:
            if config.called in names:
                raise ConfigError(f"There are two connectors of the name {config.called}; give one another name.")
            if (other := config.before or config.after or CHECK_SPACES) not in names:
                raise ConfigError(f"The connector {config.called} has no place: there is no {other}, but {', '.join(names)}.")
            names.insert(names.index(other) + (config.after is not None), config.called)
            placed[config.called] = OwnConnector(config)
        connectors: list[Connector] = []
        for name in names:
            if name == CHECK_SPACES:
                connectors.append(CheckSpaces(*spaces))
            elif name == CHECK_FINITE:
                connectors.append(CheckFinite())
            else:
                connectors.append(placed[name])
                spaces = placed[name].spaces(spaces)
        mine = placed.values()
        adds = frozenset[str]().union(*(connector.adds for connector in mine))
        return cls(
            tuple(connectors),
            spaces,
            reads=frozenset[str]().union(*(connector.reads for connector in mine)) - adds,
            adds=adds,
            looks_ahead=any(connector.looks_ahead for connector in mine),
            fingerprints=tuple(connector.fingerprint for connector in mine if connector.fingerprint),
        )

    def __call__(self, made: Columns) -> dict[str, np.ndarray]:
        """Columns through all connectors, then flat: `obs`, or `obs/position`, …

        Raises:
            DataError: they are not what they have to be.
        """
        for connector in self.connectors:
            if not len(made[STARTS]):
                break  # nothing is left
            made = connector(made)
        return {path: leaf for name, tree in made.items() for path, leaf in nested.flatten(tree, name).items()}


class OwnConnector:
    """One of the user's own, whose errors get its name, and whose result is checked."""

    def __init__(self, config: ConnectorConfig) -> None:
        self.path = str(config)
        self._run = config.make("connector")
        if not callable(self._run):
            raise ConfigError(f"The connector {self.path} cannot be called with columns.")
        found = imported(config.path, "connector")
        told = self._run if inspect.isclass(found) else found  # a function has its arguments bound
        self.reads = frozenset(getattr(told, "reads", ()))
        self.adds = frozenset(getattr(told, "adds", ()))
        self.looks_ahead = bool(getattr(told, "looks_ahead", False))
        self.fingerprint = str(getattr(told, "fingerprint", ""))
        self._spaces = getattr(told, "spaces", None)

    def spaces(self, spaces: Spaces) -> Spaces:
        """What the spaces of observations and actions become."""
        if self._spaces is None:
            return spaces
        with own_errors(f"connector {self.path}", f"with the spaces {spaces}", ConfigError):
            return a_pair(self._spaces(*spaces), f"connector {self.path}")

    def __call__(self, steps: Columns) -> Columns:
        looks_ahead = not steps[IS_STEP].all()
        with own_errors(f"connector {self.path}", f"on {len(steps[STARTS]):,} rows"):
            made = self._run(read_only(steps))
        with within(f"The connector {self.path}"):
            return check_layout(made, looks_ahead=looks_ahead)


def a_pair(spaces: Any, who: str) -> Spaces:
    """The same, (observation space, action space).

    Raises:
        ConfigError: they are not what `who` has to say.
    """
    if not (isinstance(spaces, tuple) and len(spaces) == 2 and all(isinstance(space, gym.Space) for space in spaces)):
        raise ConfigError(
            f"spaces() of the {who} gives {spaces!r}: it has to give a pair of gymnasium spaces, of observations and actions."
        )
    return spaces
