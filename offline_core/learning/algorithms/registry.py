"""The algorithms by name: one line each makes the name valid and its parameters a section of the form."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import Field, field_validator

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
from offline_core.runtime.config import Config, closed_by_name, parse
from offline_core.runtime.parameter_names import did_you_mean
from offline_core.runtime.python_object import unwrapped
from offline_core.runtime.user_code import UserCode, import_class

AnyAlgorithm = TypeVar("AnyAlgorithm", bound=Algorithm)


def section(kind: type[AnyAlgorithm]) -> AnyAlgorithm:
    """Return a field for the parameters of an algorithm."""
    field: AnyAlgorithm = Field(kind(), description="Used if it is the algorithm.", json_schema_extra=closed_by_name)
    return field


class AlgorithmSections(Config):
    """The name of an algorithm, and a section with the parameters of each that it may name."""

    algorithm: str | UserCode = Field(description="Its name, or your own.")

    @classmethod
    def sections(cls) -> dict[str, type[Algorithm]]:
        """Return the class of each algorithm, by name."""
        types = {name: type(field.default) for name, field in cls.model_fields.items()}
        return {name: kind for name, kind in types.items() if issubclass(kind, Algorithm)}

    @property
    def chosen(self) -> Algorithm:
        """The algorithm, with its parameters.

        Raises:
            ConfigError: A user's code is named, and is no algorithm.
        """
        if isinstance(self.algorithm, str):
            return getattr(self, self.algorithm)  # type: ignore[no-any-return]
        return parse(import_class(self.algorithm.path, "algorithm", Algorithm), unwrapped(self.algorithm.arguments))

    @property
    def unused(self) -> set[str]:
        return super().unused | {name for name in self.sections() if name != self.algorithm}


def _list_names(schema: dict[str, Any]) -> None:
    schema["enum"] = list(algorithms())


class AlgorithmChoice(AlgorithmSections):
    """The algorithm to learn with, and the parameters of each."""

    algorithm: Annotated[str, Field(json_schema_extra=_list_names)] | UserCode = Field(
        "bc",
        description="bc: the recorded actions are the truth. marwil, awac: the better ones are. iql, cql, cal_ql, bcq, "
        "td3_bc, rebrac, dqn: the value of actions is learned, and good ones are chosen. sac, td3: the same, for play; nothing "
        "keeps them near a log. dt: actions are what continues a sequence to a given return. Or your own subclass of "
        "offline_core.Algorithm: its path, and arguments for its fields.",
    )
    bc: BC = section(BC)
    marwil: MARWIL = section(MARWIL)
    dqn: DQN = section(DQN)
    iql: IQL = section(IQL)
    cql: CQL = section(CQL)
    cal_ql: CalQL = section(CalQL)
    bcq: BCQ = section(BCQ)
    td3_bc: TD3BC = section(TD3BC)
    rebrac: ReBRAC = section(ReBRAC)
    awac: AWAC = section(AWAC)
    dt: DT = section(DT)
    sac: SAC = section(SAC)
    td3: TD3 = section(TD3)

    @field_validator("algorithm")
    @classmethod
    def _is_known(cls, algorithm: str | UserCode) -> str | UserCode:
        if isinstance(algorithm, str) and algorithm not in (known := algorithms()):
            raise ValueError(
                f"there is no algorithm {algorithm!r}{did_you_mean(algorithm, known)}; there are {', '.join(known)}"
            )
        return algorithm


def algorithms() -> dict[str, type[Algorithm]]:
    """Return the class of each algorithm of a training from a log, by name."""
    return AlgorithmChoice.sections()
