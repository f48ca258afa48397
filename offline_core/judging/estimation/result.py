"""What comes of an off-policy estimate."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.runtime.result import PolicyResult


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


class OffPolicyResult(PolicyResult):
    """What a policy would come to where a dataset was recorded."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    uri: str = Field(description="Where this is kept, below the checkpoint; nothing is there if that cannot be written.")
    dataset: DatasetRef
    behaviour: str | None = Field(description="Checkpoint that the recorded actions were weighed by; None: by action_logp.")
    explore: bool = Field(description="The policy samples its actions; otherwise it always takes the most likely one.")
    gamma: float
    horizon: int | None = Field(description="Steps of an episode that count. None: all until it terminates.")
    confidence: float
    recorded: Interval = Field(description="Mean discounted return of the recorded episodes themselves.")
    estimates: dict[str, Estimate] = Field(description="By method.")
    warnings: list[str] = Field(description="Why some of this may mean less than it seems to.")
    open_episodes: int = Field(description="Episodes whose recording ends before the horizon, without a termination.")
    unrecorded_share: float = Field(
        description="Share of the discounted steps within the horizon, or of the value if that is more, that was not recorded: "
        "the Q function's word in fqe, dr and wdr, and missing in is, wis, pdis and wpdis. Weighted as in wpdis."
    )
    seconds: float

    @property
    def told_horizon(self) -> str:
        """In words."""
        steps = "until it terminates" if self.horizon is None else f"{self.horizon:,} steps"
        if not self.open_episodes:
            return steps
        return f"{steps}, of which {100 * self.unrecorded_share:.3g} % were not recorded"
