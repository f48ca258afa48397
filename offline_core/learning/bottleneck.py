"""The bottleneck of a training in words: rates, where its time went, and what would have been faster."""

from __future__ import annotations

from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import DataLoader
from offline_core.learning.loop import Seconds
from offline_core.learning.planning import WORTH, Costs, choices, chosen_before, ray_resources


def bottleneck(
    config: TrainingConfig, seconds: Seconds, loader: DataLoader, *, loading: float, steps: int, costs: Costs | None
) -> str:
    """Return the rates of reading and learning, the largest share of the time, and parameters that would be faster.

    Arguments:
        loading: seconds until the first batch could be drawn.
        steps: learned from.
        costs: of reading and updating in one process, to predict other choices; None: too little was measured.
    """
    every = seconds.all + loading
    read = loader.read
    reading = read.seconds if loader.resident else 0.0
    shares = {
        "starting": (loading - reading, "it is once a run"),
        "reading the data": (reading, "it is read once a run"),
        "waiting for data": (seconds.wait, "reading is slower than learning"),
        "gathering batches": (seconds.gather, "raise optimizer.batch_size"),
        "updating": (seconds.update, "the learner is busy, as it should be"),
        "reports, checkpoints and held-out loss": (seconds.pause, "raise optimizer.updates_per_iteration"),
    }
    name, (took, remark) = max(shares.items(), key=lambda item: item[1][0])
    learning = seconds.wait + seconds.gather + seconds.update
    rates = [
        f"Learned {steps / max(learning, 1e-9):,.0f} steps/s, waiting {seconds.wait / max(learning, 1e-9):.0%} of that time"
    ]
    if read.seconds:
        speed = f"{read.steps / read.seconds:,.0f} steps/s ({read.bytes / read.seconds / 1e6:,.0f} MB/s)"
        learners = config.compute.processes
        rates.insert(
            0, f"One of {learners} learners read and laid out {speed}" if learners > 1 else f"Read and laid out {speed}"
        )
    where = f"{took / max(every, 1e-9):.0%} of all time went into {name}: {remark}"
    return f"{'; '.join(rates)}. {where}. {_faster(config, costs, every - seconds.pause)}"


def _faster(config: TrainingConfig, costs: Costs | None, took_seconds: float) -> str:
    """Return the choice that would have been clearly faster, by the measured costs."""
    if costs is None:
        return "Too little was measured to tell what would be faster."
    now = chosen_before(config)
    free = config.model_copy(
        update={
            "data": config.data.model_copy(update={"prelearners": "auto"}),
            "compute": config.compute.model_copy(update={"learners": "auto"}),
        }
    )
    best = costs.best(choices(free, ray_resources()))
    if best == now or costs.seconds(best) >= WORTH * took_seconds:
        return f"No other number of prelearners or learners would be clearly faster on {costs.cores} CPUs."
    changed = [
        f"{knob}={there}"
        for knob, there, here in (
            ("data.prelearners", best.prelearners, now.prelearners),
            ("compute.learners", best.learners, now.learners),
        )
        if there != here
    ]
    return f"{' and '.join(changed)} would take about {costs.seconds(best) / took_seconds:.0%} as long."
