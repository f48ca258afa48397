"""Parameters of the Decision Transformer."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig
from offline_core.policies.config import TransformerLayers


class DTConfig(TransformerLayers, AlgorithmConfig):
    """Actions as the continuation of a sequence that ends with a given return (Chen et al. 2021, arXiv 2106.01345)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.dt:DT"

    target_return: float | None = Field(
        None,
        allow_inf_nan=False,
        description="Return that the policy plays for, wherever its checkpoint is played. None: the best of the dataset.",
    )
    return_scale: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Returns are divided by this before the network sees them. None: the dataset's largest, by size.",
    )

    def of_dataset(self, lowest: float, highest: float) -> DTConfig:
        """The parameters for a dataset whose returns are between these."""
        scale = max(abs(lowest), abs(highest)) or 1.0
        return self.model_copy(
            update={
                "target_return": highest if self.target_return is None else self.target_return,
                "return_scale": scale if self.return_scale is None else self.return_scale,
            }
        )
