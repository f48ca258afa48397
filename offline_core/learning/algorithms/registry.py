"""The algorithms by name: one line each makes the name valid and its parameters a section of the form."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import gymnasium as gym
from pydantic import Field, field_validator

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.awac import AWAC
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.bcq import BCQ
from offline_core.learning.algorithms.cal_ql import CalQL
from offline_core.learning.algorithms.cql import CQL
from offline_core.learning.algorithms.dqn import DQN
from offline_core.learning.algorithms.dt import DT
from offline_core.learning.algorithms.iql import IQL
from offline_core.learning.algorithms.marwil import MARWIL
from offline_core.learning.algorithms.rebrac import ReBRAC
from offline_core.learning.algorithms.sac import SAC
from offline_core.learning.algorithms.td3 import TD3
from offline_core.learning.algorithms.td3_bc import TD3BC
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, closed_by_name, parse
from offline_core.runtime.parameter_names import did_you_mean
from offline_core.runtime.python_object import unwrapped
from offline_core.runtime.user_code import UserCode, import_object
from offline_core.runtime.user_errors import user_errors

if TYPE_CHECKING:
    from offline_core.learning.algorithms.networks import Networks

AnyAlgorithm = TypeVar("AnyAlgorithm", bound=Algorithm)


def _section(kind: type[AnyAlgorithm]) -> AnyAlgorithm:
    section: AnyAlgorithm = Field(kind(), description="Used if it is the algorithm.", json_schema_extra=closed_by_name)
    return section


def _list_names(schema: dict[str, Any]) -> None:
    schema["enum"] = list(algorithms())


class AlgorithmChoice(Config):
    """The algorithm to learn with, and the parameters of each."""

    algorithm: Annotated[str, Field(json_schema_extra=_list_names)] | UserCode = Field(
        "bc",
        description="bc: the recorded actions are the truth. marwil, awac: the better ones are. iql, cql, cal_ql, bcq, "
        "td3_bc, rebrac, dqn: the value of actions is learned, and good ones are chosen. sac, td3: the same, for play; nothing "
        "keeps them near a log. dt: actions are what continues a sequence to a given return. Or your own subclass of "
        "offline_core.Algorithm: its path, and arguments for its fields.",
    )
    bc: BC = _section(BC)
    marwil: MARWIL = _section(MARWIL)
    dqn: DQN = _section(DQN)
    iql: IQL = _section(IQL)
    cql: CQL = _section(CQL)
    cal_ql: CalQL = _section(CalQL)
    bcq: BCQ = _section(BCQ)
    td3_bc: TD3BC = _section(TD3BC)
    rebrac: ReBRAC = _section(ReBRAC)
    awac: AWAC = _section(AWAC)
    dt: DT = _section(DT)
    sac: SAC = _section(SAC)
    td3: TD3 = _section(TD3)

    @field_validator("algorithm")
    @classmethod
    def _is_known(cls, algorithm: str | UserCode) -> str | UserCode:
        if isinstance(algorithm, str) and algorithm not in (known := algorithms()):
            raise ValueError(
                f"there is no algorithm {algorithm!r}{did_you_mean(algorithm, known)}; there are {', '.join(known)}"
            )
        return algorithm

    @property
    def unused(self) -> set[str]:
        return super().unused | {name for name in algorithms() if name != self.algorithm}


def algorithms() -> dict[str, type[Algorithm]]:
    """The class of each algorithm, by name."""
    found = {name: type(field.default) for name, field in AlgorithmChoice.model_fields.items()}
    return {name: kind for name, kind in found.items() if issubclass(kind, Algorithm)}


def chosen_algorithm(name: str | UserCode, action_space: gym.Space[Any], algorithm: Algorithm | None = None) -> Algorithm:
    """Return an algorithm as it learns such actions, with its default parameters if `algorithm` is None.

    Raises:
        ConfigError: The name is unknown, the parameters are another algorithm's, or have no effect with these actions.
    """
    if isinstance(name, UserCode):
        return _own_algorithm(name).for_actions(action_space)
    known = algorithms()
    if name not in known:
        raise ConfigError(f"There is no algorithm {name!r}; there are {', '.join(known)}.")
    algorithm = known[name]() if algorithm is None else algorithm
    if type(algorithm) is not known[name]:
        raise ConfigError(f"{name} takes a {known[name].__name__}, not a {type(algorithm).__name__}.")
    return algorithm.for_actions(action_space)


def make_networks(
    name: str | UserCode,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    network: NetworkConfig = NetworkConfig(),
    algorithm: Algorithm | None = None,
    *,
    seed: int = 0,
) -> Networks:
    """Return new networks that learn by an algorithm, with its default parameters if `algorithm` is None.

    Raises:
        ConfigError: As `chosen_algorithm`, or the algorithm cannot act in this space.
    """
    from offline_core.learning.algorithms.networks import Networks

    chosen = chosen_algorithm(name, action_space, algorithm)
    own = user_errors(f"algorithm {name}", f"with {observation_space} and {action_space}", ConfigError)
    with own if isinstance(name, UserCode) else contextlib.nullcontext():
        return Networks(chosen, observation_space, action_space, network, seed=seed)


def _own_algorithm(code: UserCode) -> Algorithm:
    kind = import_object(code.path, "algorithm")
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ConfigError(f"The algorithm {code} has to be a subclass of offline_core's Algorithm.")
    return parse(kind, unwrapped(code.arguments))
