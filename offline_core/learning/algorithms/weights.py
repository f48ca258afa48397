"""Exponential advantage weights: how much more a step that went well is cloned than one that did not."""

from __future__ import annotations

from torch import Tensor


def advantage_weights(exponents: Tensor, max_weight: float) -> tuple[Tensor, dict[str, Tensor]]:
    """exp(exponent), at most `max_weight`, without gradient: (B,), and what to watch of it."""
    unclipped = exponents.detach().exp()
    weights = unclipped.clamp(max=max_weight)
    return weights, {
        "weight": weights,
        "squared_weight": weights.square(),
        "weights_clipped": (unclipped > max_weight).float(),
    }


def weight_numbers(means: dict[str, float]) -> dict[str, float]:
    """Means of what `advantage_weights` watches → shares of the steps.

    `effective_sample_size` is that of importance sampling (Kish 1965): equal weights count every step, one large weight
    among small ones little more than itself.
    """
    return {
        "effective_sample_size": means["weight"] ** 2 / max(means["squared_weight"], 1e-30),
        "weights_clipped": means["weights_clipped"],
    }
