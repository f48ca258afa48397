"""What comes of an off-policy estimate."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from offline_core.storage.dataset import DatasetRef


class Interval(BaseModel):
    """A mean discounted return, and where a share `confidence` of the bootstrap's resamples lies."""

    # Of weights that are all 0 there is no mean, and one may be beyond every number: JSON's null could not be read back.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    value: float
    low: float
    high: float


class Estimate(Interval):
    """What one method says."""

    effective_episodes: float | None = Field(
        description="Effective sample size (Kish) of the weights, at most the number of episodes; of weights by step, the "
        "harmonic mean over the recorded steps, discounted: steps at which few are left count most. None: nothing is weighted."
    )
    largest_weight: float | None = Field(description="Share of the heaviest episode in all weights; by step, the plain mean.")


class OffPolicyResult(BaseModel):
    """What a policy would come to where a dataset was recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    uri: str = Field(description="Where this is kept, below the checkpoint; nothing is there if that cannot be written.")
    checkpoint: str
    dataset: DatasetRef
    behaviour: str | None = Field(description="Checkpoint that the recorded actions were weighed by; None: by action_logp.")
    explore: bool = Field(description="The policy samples its actions; otherwise it always takes the most likely one.")
    gamma: float
    confidence: float
    recorded: Interval = Field(description="Mean discounted return of the recorded episodes themselves.")
    estimates: dict[str, Estimate] = Field(description="By method.")
    warnings: list[str] = Field(description="Why some of this may mean less than it seems to.")
    open_episodes: int = Field(description="Episodes that did not terminate: cut off, or truncated.")
    seconds: float
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")
