"""Parameters of a policy's network."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from offline_core.config import Config

Activation = Literal["tanh", "relu", "silu", "linear"]


class NetworkConfig(Config):
    """A multi-layer perceptron over the flattened observation."""

    hidden_sizes: list[int] = Field([64, 64], description="Units of each hidden layer, first to last.", max_length=10)
    activation: Activation = Field("tanh", description="Non-linearity after each hidden layer.")
    share_layers: bool = Field(False, description="Policy and value function share the hidden layers.")
    normalize_observations: bool = Field(
        False, description="Subtract the mean and divide by the standard deviation of the observations seen in training."
    )

    @field_validator("hidden_sizes")
    @classmethod
    def _positive(cls, sizes: list[int]) -> list[int]:
        if any(not 1 <= size <= 65_536 for size in sizes):
            raise ValueError("every hidden layer needs between 1 and 65,536 units")
        return sizes
