"""How fast each layer of a training was, where its time went, in words, and the one knob to turn."""

from __future__ import annotations

from offline_core.learning.config import TrainingConfig
from offline_core.learning.feed import Feed
from offline_core.learning.loop import Seconds


def bottleneck(config: TrainingConfig, seconds: Seconds, feed: Feed, *, loading: float, steps: int) -> str:
    """Rates of reading and learning, and where the time went.

    Arguments:
        loading: seconds until the first batch could be drawn.
        steps: learned from.
    """
    every = seconds.all + loading
    read = feed.read
    reading = read.seconds if feed.resident else 0.0
    shares = {
        "starting": (loading - reading, "there is nothing to turn, it is once a run"),
        "reading the data": (reading, _more_prelearners(config)),
        "waiting for data": (seconds.wait, _more_prelearners(config)),
        "gathering batches": (seconds.gather, "raise optimizer.batch_size, or compute.learners"),
        "updating": (seconds.update, _faster_updates(config)),
        "reports, checkpoints and held-out loss": (seconds.pause, "raise optimizer.updates_per_iteration"),
    }
    name, (took, knob) = max(shares.items(), key=lambda item: item[1][0])
    learning = seconds.wait + seconds.gather + seconds.update
    rates = [
        f"Learned {steps / max(learning, 1e-9):,.0f} steps/s, waiting {seconds.wait / max(learning, 1e-9):.0%} of that time"
    ]
    if read.seconds:
        speed = f"{read.steps / read.seconds:,.0f} steps/s ({read.bytes / read.seconds / 1e6:,.0f} MB/s)"
        rates.insert(0, f"Read and laid out {speed}")
    return f"{'; '.join(rates)}. {took / max(every, 1e-9):.0%} of all time went into {name}: {knob}."


def _more_prelearners(config: TrainingConfig) -> str:
    if config.data.prelearners == 0:
        return "raise data.prelearners"
    return "more data.prelearners read faster, if there are CPUs for them"


def _faster_updates(config: TrainingConfig) -> str:
    if config.compute.learners == 0 and config.compute.threads == 1:
        return "the learner is busy, as it should be; large networks gain from compute.threads or compute.learners"
    return "the learners are busy, as they should be; more compute.learners, or a GPU each, share the work"
