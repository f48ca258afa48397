"""The connectors of a prelearner, ours and the user's, in the order they run in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from offline_core.errors import ConfigError, DataError
from offline_core.own_errors import own_errors
from offline_core.prelearner.config import ConnectorConfig
from offline_core.prelearner.connectors import CheckFinite, CheckSpaces, Connector
from offline_core.prelearner.layout import IS_STEP, STARTS, Columns, check_layout

Spaces = tuple[gym.Space[Any], gym.Space[Any]]

CHECK_SPACES, CHECK_FINITE = "check_spaces", "check_finite"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Connectors, and what they come to."""

    connectors: tuple[Connector, ...]
    spaces: Spaces
    """Of the observations and actions that come out."""
    reads: frozenset[str] = frozenset()
    """Columns that the user's connectors need."""
    adds: frozenset[str] = frozenset()
    """Columns that they make, which a dataset need not have."""
    looks_ahead: bool = False
    """One of them needs the observation after an episode's last step."""

    @classmethod
    def of(cls, own: Iterable[ConnectorConfig], spaces: Spaces) -> Pipeline:
        """Those of the user among ours; `spaces` are of what comes in.

        Raises:
            ConfigError: one cannot be made, or its place is not there.
        """
        names, placed = [CHECK_SPACES, CHECK_FINITE], dict[str, OwnConnector]()
        for config in own:
            if config.name in names:
                raise ConfigError(f"There are two connectors of the name {config.name}; give one of them another name.")
            if (other := config.before or config.after or CHECK_SPACES) not in names:
                raise ConfigError(f"The connector {config.name} has no place: there is no {other}, but {', '.join(names)}.")
            names.insert(names.index(other) + (config.after is not None), config.name)
            placed[config.name] = OwnConnector(config)
        connectors: list[Connector] = []
        for name in names:
            match name:
                case "check_spaces":
                    connectors.append(CheckSpaces(*spaces))
                case "check_finite":
                    connectors.append(CheckFinite())
                case _:
                    connectors.append(placed[name])
                    spaces = placed[name].spaces(spaces)
        mine = placed.values()
        return cls(
            tuple(connectors),
            spaces,
            reads=frozenset().union(*(connector.reads for connector in mine)),
            adds=frozenset().union(*(connector.adds for connector in mine)),
            looks_ahead=any(connector.looks_ahead for connector in mine),
        )


class OwnConnector:
    """One of the user's own, whose errors get its name, and whose result is checked."""

    def __init__(self, config: ConnectorConfig) -> None:
        self.path = config.path
        self._run = config.make("connector")
        if not callable(self._run):
            raise ConfigError(f"The connector {self.path} cannot be called with columns.")
        told = getattr(self._run, "func", self._run)  # a function that has its arguments bound
        self.reads = frozenset(getattr(told, "reads", ()))
        self.adds = frozenset(getattr(told, "adds", ()))
        self.looks_ahead = bool(getattr(told, "looks_ahead", False))
        self._spaces = getattr(told, "spaces", None)

    def spaces(self, spaces: Spaces) -> Spaces:
        """What the spaces of observations and actions become."""
        if self._spaces is None:
            return spaces
        with own_errors(f"connector {self.path}", f"with the spaces {spaces}", ConfigError):
            made = self._spaces(*spaces)
        if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(space, gym.Space) for space in made)):
            raise ConfigError(f"spaces() of the connector {self.path} gives {made!r}, and not a pair of gymnasium spaces.")
        return made

    def __call__(self, steps: Columns) -> Columns:
        looks_ahead = not steps[IS_STEP].all()
        with own_errors(f"connector {self.path}", f"on {len(steps[STARTS]):,} rows"):
            made = self._run(steps)
        try:
            return check_layout(made, looks_ahead=looks_ahead)
        except DataError as error:
            raise type(error)(f"The connector {self.path}: {error}") from error
