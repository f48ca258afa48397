"""The algorithms by name: one line each makes the name valid and its parameters a section of the form."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig
from offline_core.learning.algorithms.awac_config import AWACConfig
from offline_core.learning.algorithms.bc_config import BCConfig
from offline_core.learning.algorithms.bcq_config import BCQConfig
from offline_core.learning.algorithms.cql_config import CalQLConfig, CQLConfig
from offline_core.learning.algorithms.dqn_config import DQNConfig
from offline_core.learning.algorithms.dt_config import DTConfig
from offline_core.learning.algorithms.iql_config import IQLConfig
from offline_core.learning.algorithms.marwil_config import MARWILConfig
from offline_core.learning.algorithms.sac_config import SACConfig
from offline_core.learning.algorithms.td3_config import ReBRACConfig, TD3BCConfig, TD3Config
from offline_core.runtime.config import Config, closed_by_name
from offline_core.runtime.parameter_names import did_you_mean
from offline_core.runtime.user_code import UserCode

_USED = "Used if it is the algorithm."


def _list_names(schema: dict[str, Any]) -> None:
    schema["enum"] = list(algorithm_configs())


class AlgorithmChoice(Config):
    """The algorithm to learn with, and the parameters of each."""

    algorithm: Annotated[str, Field(json_schema_extra=_list_names)] | UserCode = Field(
        "bc",
        description="bc: the recorded actions are the truth. marwil, awac: the better ones are. iql, cql, cal_ql, bcq, "
        "td3_bc, rebrac, dqn: the value of actions is learned, and good ones are chosen. sac, td3: the same, for play; nothing "
        "keeps them near a log. dt: actions are what continues a sequence to a given return. Or your own subclass of "
        "offline_core.learning.algorithms.algorithm.Algorithm: its path, and arguments for its config_class.",
    )
    bc: BCConfig = Field(BCConfig(), description=_USED, json_schema_extra=closed_by_name)
    marwil: MARWILConfig = Field(MARWILConfig(), description=_USED, json_schema_extra=closed_by_name)
    dqn: DQNConfig = Field(DQNConfig(), description=_USED, json_schema_extra=closed_by_name)
    iql: IQLConfig = Field(IQLConfig(), description=_USED, json_schema_extra=closed_by_name)
    cql: CQLConfig = Field(CQLConfig(), description=_USED, json_schema_extra=closed_by_name)
    cal_ql: CalQLConfig = Field(CalQLConfig(), description=_USED, json_schema_extra=closed_by_name)
    bcq: BCQConfig = Field(BCQConfig(), description=_USED, json_schema_extra=closed_by_name)
    td3_bc: TD3BCConfig = Field(TD3BCConfig(), description=_USED, json_schema_extra=closed_by_name)
    rebrac: ReBRACConfig = Field(ReBRACConfig(), description=_USED, json_schema_extra=closed_by_name)
    awac: AWACConfig = Field(AWACConfig(), description=_USED, json_schema_extra=closed_by_name)
    dt: DTConfig = Field(DTConfig(), description=_USED, json_schema_extra=closed_by_name)
    sac: SACConfig = Field(SACConfig(), description=_USED, json_schema_extra=closed_by_name)
    td3: TD3Config = Field(TD3Config(), description=_USED, json_schema_extra=closed_by_name)

    @field_validator("algorithm")
    @classmethod
    def _is_known(cls, algorithm: str | UserCode) -> str | UserCode:
        if isinstance(algorithm, str) and algorithm not in (known := algorithm_configs()):
            raise ValueError(
                f"there is no algorithm {algorithm!r}{did_you_mean(algorithm, known)}; there are {', '.join(known)}"
            )
        return algorithm

    @property
    def unused(self) -> set[str]:
        return super().unused | {name for name in algorithm_configs() if name != self.algorithm}


def algorithm_configs() -> dict[str, type[AlgorithmConfig]]:
    """The class of the parameters of each algorithm, by name."""
    found = {name: type(field.default) for name, field in AlgorithmChoice.model_fields.items()}
    return {name: kind for name, kind in found.items() if issubclass(kind, AlgorithmConfig)}
