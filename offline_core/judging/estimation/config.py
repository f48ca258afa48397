"""Parameters of an off-policy estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from offline_core.data.store.allowed_roots import IS_URI
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, closed

Method = Literal["is", "wis", "pdis", "wpdis", "cis", "fqe", "dr", "drs", "wdr"]
DECIDING: Method = "wdr"
"""The one that is told first and decides, where it is among those that are asked for."""
METHODS_IN_WORDS: Mapping[str, str] = {
    "is": "importance sampling",
    "wis": "weighted importance sampling",
    "pdis": "per-decision importance sampling",
    "wpdis": "weighted per-decision importance sampling",
    "cis": "clipped per-decision importance sampling",
    "fqe": "fitted Q evaluation",
    "dr": "doubly robust",
    "drs": "doubly robust with shrunken weights",
    "wdr": "weighted doubly robust",
}
Horizon = Literal["auto", "recorded", "continuing"] | Annotated[int, Field(ge=1, le=10_000_000)]
CLONE_UPDATES = 20_000
"""Of a clone of what acted, at most; it stops once it gets no better on held-out episodes."""


def method_in_words(name: str) -> str:
    """`weighted importance sampling (wis)`; the name alone of a method that is not known."""
    return f"{METHODS_IN_WORDS[name]} ({name})" if name in METHODS_IN_WORDS else name


class FQEConfig(Config):
    """How the Q function is fitted that fqe, dr and wdr are based on."""

    network: NetworkConfig = Field(
        NetworkConfig(hidden_sizes=[64, 64], activation="relu", normalize_observations=True),
        description="Layers of the Q function; it looks at as many frames as the policy does.",
    )
    folds: int = Field(
        2,
        ge=1,
        le=100,
        description="Parts of the episodes; what is said of each is by a Q function that is fitted to the others. 1: by one "
        "that is fitted to all, whose intervals are too narrow.",
    )
    ensemble: int = Field(
        1,
        ge=1,
        le=100,
        description="Q functions of each part, whose mean counts; they differ by their first weights and batches' actions.",
    )
    updates: int = Field(
        5_000,
        ge=1,
        le=10_000_000,
        description="Steps of the optimizer, for each part. Of a log of one step, or with a gamma of 0, at most: it stops once "
        "rewards of held-out episodes are told no better.",
    )
    max_steps: int = Field(
        1_000_000,
        ge=1,
        description="The functions are fitted to so many steps of whole episodes, drawn by lot; longer logs are read twice.",
    )
    batch_size: int = Field(256, ge=1, le=1_048_576, description="Steps per update, at most; each once before any comes again.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Of Adam at the beginning; it falls to 0 in a line.")
    target_rate: float = Field(
        0.1, gt=0, le=1, description="How far the target network follows the Q function with each update (Polyak)."
    )
    action_samples: int = Field(
        16, ge=1, le=4096, description="Actions of the policy whose mean is the value of an observation; Discrete needs none."
    )

    @model_validator(mode="after")
    def _sees_one_observation(self) -> FQEConfig:
        if self.network.remembers:
            raise ValueError("the Q function has no memory of its own: leave recurrent at None and frames at 1")
        return self


class EstimateConfig(Config):
    """What a policy would come to, told from episodes that another one has played; and what it has to come to."""

    gamma: float = Field(0.99, ge=0, le=1, description="Discount a step; estimates are of discounted returns. 1: none.")
    horizon: Horizon = Field(
        "auto",
        description="Steps of an episode that count. recorded: as many as the longest episode has. continuing: all until it "
        "terminates, also after a truncation. auto: recorded if all episodes have one length, or those that did not terminate "
        "all have the longest; otherwise continuing.",
    )
    methods: list[Method] = Field(
        ["is", "wis", "pdis", "wpdis", "fqe", "dr", "wdr"],
        min_length=1,
        description="Estimators; fqe, dr, drs and wdr fit a Q function first, which takes some seconds. cis and drs make large "
        "weights smaller, at a threshold that the log chooses.",
    )
    explore: bool = Field(
        True, description="The policy that samples its actions; otherwise the one that always takes the most likely one."
    )
    behaviour: Annotated[str | None, IS_URI] = Field(
        None,
        description="Checkpoint of the policy that acted, or of a clone of it; None: what was recorded as action_logp.",
    )
    noise: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Standard deviation, in units of the action, of the Gaussian noise that a rule, a function or an ONNX file "
        "is played with where it answers one action of a Box: without any, no recorded action is ever that one, and fqe alone "
        "can tell its value. None: without.",
    )
    fqe: FQEConfig = Field(FQEConfig(), description="How the Q function is fitted.", json_schema_extra=closed)
    confidence: float = Field(0.95, gt=0, lt=1, description="Share of the bootstrap's resamples within an interval.")
    resamples: int = Field(1_000, ge=10, le=1_000_000, description="Of the bootstrap, each of as many episodes as there are.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of the resamples and of the Q function.")
    require_return: float | None = Field(
        None,
        allow_inf_nan=False,
        description="Stop unless the lower end of the interval reaches this discounted return. None: report only.",
    )
    gate_method: Method = Field(DECIDING, description="Whose interval that is.")
    min_effective_episodes: float = Field(
        10.0, ge=1, description="With fewer effective episodes an estimate means nothing: a warning, and no promotion by it."
    )

    @model_validator(mode="after")
    def _gate_is_estimated(self) -> EstimateConfig:
        if self.require_return is not None and self.gate_method not in self.methods:
            raise ValueError(f"gate_method {self.gate_method} is none of the methods {', '.join(self.methods)}; add it there")
        return self
