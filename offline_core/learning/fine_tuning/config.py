"""Parameters of going on by play from what was learned from recordings."""

from __future__ import annotations

from pydantic import Field

from offline_core.learning.online.config import OnlineConfig
from offline_core.runtime.config import Config, EnvironmentSpec


class PlayConfig(OnlineConfig):
    """How a policy that was learned before learns from what it plays."""

    learning_starts_steps: int = Field(
        250,
        ge=0,
        le=10**9,
        description="Environment steps before the first update, in which the policy plays as it is; recorded steps are there.",
    )


class FineTuneConfig(Config):
    """Where the policy plays, how it learns from that, and when it is good enough."""

    environment: EnvironmentSpec | None = Field(
        None, description="Where to play. None: where the training played, or the dataset was recorded."
    )
    online: PlayConfig = Field(PlayConfig(), description="How it learns from what it plays.")
    offline_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of each batch that is drawn from the dataset, the rest from play.",
    )
    roll_back_after: int | None = Field(
        5,
        ge=1,
        description="So many evaluations in a row below that of the first policy, after which the best networks so far come "
        "back. None: they never do; the best policy is stored all the same.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of start states, actions and batches.")
    total_steps: int = Field(100_000, ge=1, le=10**12, description="Environment steps, at most.")
    target_return: float | None = Field(None, description="Stop at this mean greedy return. None: play all steps.")
    num_envs: int = Field(4, ge=1, le=65_536, description="Copies of the environment that are stepped together.")
    evaluation_interval: int = Field(1_250, ge=1, le=1_000_000, description="Steps of each copy between two evaluations.")
    evaluation_episodes: int = Field(10, ge=1, le=1_000_000, description="Greedy episodes of an evaluation.")
    torch_threads: int = Field(1, ge=1, le=1024, description="Threads that Torch computes with; small networks want one.")

    @property
    def copies(self) -> int:
        """Copies of the environment that are stepped together: no more than there are steps."""
        return min(self.num_envs, self.total_steps)

    @property
    def snapshots_at_returns(self) -> list[float]:
        """None."""
        return []
