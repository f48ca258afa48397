"""Where the time of a training went, in words, and the one knob to turn."""

from __future__ import annotations

from offline_core.learning.config import TrainingConfig
from offline_core.learning.loop import Seconds


def bottleneck(config: TrainingConfig, seconds: Seconds, *, loading: float) -> str:
    """One sentence."""
    every = seconds.all + loading
    shares = {
        "loading the data": (loading, _more_prelearners(config)),
        "waiting for data": (seconds.wait, _more_prelearners(config)),
        "gathering batches": (seconds.gather, "raise optimizer.batch_size, or compute.learners"),
        "updating": (seconds.update, _faster_updates(config)),
        "reports, checkpoints and held-out loss": (seconds.pause, "raise updates_per_iteration"),
    }
    name, (took, knob) = max(shares.items(), key=lambda item: item[1][0])
    share = took / every if every else 0.0
    return f"{share:.0%} of the time went into {name}: {knob}."


def _more_prelearners(config: TrainingConfig) -> str:
    if config.data.prelearners == 0:
        return "raise data.prelearners"
    return "more data.prelearners read faster, if there are CPUs for them"


def _faster_updates(config: TrainingConfig) -> str:
    if config.compute.learners == 0 and config.compute.threads == 1:
        return "the learner is busy, as it should be; large networks gain from compute.threads or compute.learners"
    return "the learners are busy, as they should be; more compute.learners, or a GPU each, share the work"
