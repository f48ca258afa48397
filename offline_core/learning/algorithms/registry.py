"""The algorithms by name: one line each makes the name valid and its parameters a section of the form."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig
from offline_core.learning.algorithms.bc_config import BCConfig
from offline_core.learning.algorithms.cql_config import CQLConfig
from offline_core.learning.algorithms.dqn_config import DQNConfig
from offline_core.learning.algorithms.iql_config import IQLConfig
from offline_core.learning.algorithms.marwil_config import MARWILConfig
from offline_core.runtime.config import Config
from offline_core.runtime.user_code import UserCode

_USED = "Used if it is the algorithm."


def _list_names(schema: dict[str, Any]) -> None:
    schema["enum"] = list(algorithm_configs())


class AlgorithmChoice(Config):
    """The algorithm to learn with, and the parameters of each."""

    algorithm: Annotated[str, Field(json_schema_extra=_list_names)] | UserCode = Field(
        "bc",
        description="bc: the recorded actions are the truth. marwil: the better ones are. dqn, iql, cql: the value of actions "
        "is learned, and the best are chosen. Or your own subclass of "
        "offline_core.learning.algorithms.algorithm.Algorithm: its path, and arguments for its config_class.",
    )
    bc: SkipJsonSchema[BCConfig] = Field(BCConfig(), exclude=True, description="It has none.")
    marwil: MARWILConfig = Field(MARWILConfig(), title="MARWIL", description=_USED)
    dqn: DQNConfig = Field(DQNConfig(), title="DQN", description=_USED)
    iql: IQLConfig = Field(IQLConfig(), title="IQL", description=_USED)
    cql: CQLConfig = Field(CQLConfig(), title="CQL", description=_USED)

    @field_validator("algorithm")
    @classmethod
    def _is_known(cls, algorithm: str | UserCode) -> str | UserCode:
        if isinstance(algorithm, str) and algorithm not in (known := algorithm_configs()):
            raise ValueError(f"there is no algorithm {algorithm!r}; there are {', '.join(known)}")
        return algorithm


def algorithm_configs() -> dict[str, type[AlgorithmConfig]]:
    """The class of the parameters of each algorithm, by name."""
    found = {name: type(field.default) for name, field in AlgorithmChoice.model_fields.items()}
    return {name: kind for name, kind in found.items() if issubclass(kind, AlgorithmConfig)}
