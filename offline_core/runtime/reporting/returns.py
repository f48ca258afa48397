"""The return of a policy that was played, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from offline_core.runtime.reporting.card import Verdict
from offline_core.runtime.units import count_text

FEW_EPISODES = 20
"""Below this, a mean return says little."""


class Told(NamedTuple):
    """What a card says first."""

    verdict: Verdict
    word: str
    sentence: str


def return_text(mean: float, std: float, episodes: int, actions: str, *, target: float | None = None) -> str:
    """A mean return with its spread, and of what both are.

    Arguments:
        actions: sampled or greedy.
        target: what the mean is held against: it has enough digits to be on the same side of it.
    """
    few = "; so few say little" if episodes < FEW_EPISODES else ""
    return f"{_apart(mean, target)} ± {std:,.1f} over {count_text(episodes, 'episode')} ({actions} actions{few})"


def _apart(mean: float, target: float | None) -> str:
    texts = [f"{mean:,.{digits}f}" for digits in range(1, 7)]
    if target is None or mean == target:
        return texts[0]
    return next((text for text in texts if (float(text.replace(",", "")) - target) * (mean - target) > 0), texts[0])


def returned(metrics: Mapping[str, float], actions: str = "greedy", *, target: float | None = None) -> str:
    """`return_text` of the metrics of an evaluation."""
    return return_text(*mean_of(metrics), actions, target=target)


def mean_of(metrics: Mapping[str, float]) -> tuple[float, float, int]:
    """(mean return, its standard deviation, episodes)"""
    return metrics["episode_return_mean"], metrics["episode_return_std"], int(metrics["episodes"])


def played(
    metrics: Mapping[str, float], target: float | None = None, *, is_reached: bool = False, actions: str = "greedy"
) -> Told:
    """What an evaluation shows, held against a target if there is one."""
    if "episode_return_mean" not in metrics:
        return Told("grey", "Never played", "No return is known: the policy was not played while it learned.")
    told = f"Return {returned(metrics, actions, target=target)}"
    if target is None:
        return Told("fair" if metrics["episodes"] < FEW_EPISODES else "grey", "Played", f"{told}.")
    if is_reached:
        return Told(of_enough(metrics), "Target reached", f"{told}; the target is {target:,g}.")
    return Told("bad", "Target not reached", f"{told}; the target is {target:,g}.")


def of_enough(metrics: Mapping[str, float]) -> Verdict:
    """Good, unless so few episodes say little."""
    return "fair" if metrics["episodes"] < FEW_EPISODES else "good"


def episode_facts(metrics: Mapping[str, float]) -> dict[str, object]:
    """What else an evaluation says of its episodes."""
    if "episode_return_mean" not in metrics:
        return {"Held-out loss": metrics["held_out_loss"]} if "held_out_loss" in metrics else {}
    successes = {"Success rate": f"{100 * metrics['success_rate']:.1f} %"} if "success_rate" in metrics else {}
    return {
        "Lowest and highest return": f"{metrics['episode_return_min']:,.1f} and {metrics['episode_return_max']:,.1f}",
        "Steps per episode": metrics["episode_length_mean"],
        **successes,
    }


def beside_expert(metrics: Mapping[str, float], expert: Mapping[str, float], target: float | None, actions: str) -> Told:
    """Say of a policy that learned from an expert whether it reaches the expert's target, or else is worse than the expert.

    Worse is what lies below by more than two standard errors of the difference.
    """
    mean, std, episodes = mean_of(metrics)
    best, best_std, best_episodes = mean_of(expert)
    told = f"Return {returned(metrics, actions, target=target)}; the expert returned {best:,.1f}"
    error = math.sqrt(std**2 / episodes + best_std**2 / best_episodes)
    if target is not None:
        told += f", its target was {target:,g}"
    if mean + 2 * error >= best:  # not if it is NaN
        if episodes < FEW_EPISODES:
            return Told("fair", "Not clearly worse than the expert", f"{told}.")
        return Told("good", "As good as the expert", f"{told}.")
    if target is not None and mean >= target:
        return Told(of_enough(metrics), "Target reached", f"{told}.")
    return Told("fair", "Worse than the expert", f"{told}.")
