"""Exponential advantage weights of cloning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def advantage_weights(exponents: Tensor, max_weight: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return exp(exponent) (B,), at most `max_weight` and without gradient, and its metrics."""
    unclipped = exponents.detach().exp()
    weights = unclipped.clamp(max=max_weight)
    return weights, {
        "weight": weights,
        "squared_weight": weights.square(),
        "weights_clipped": (unclipped > max_weight).float(),
    }


def weight_metrics(means: dict[str, float], *hidden: str) -> dict[str, float]:
    """Return the means to log, with the moments of `advantage_weights` as `effective_sample_size`.

    That is a share of the steps, as in importance sampling (Kish 1965): equal weights count every step, one large weight
    among small ones little more than itself. `hidden` means are left out.
    """
    shown = {name: value for name, value in means.items() if name not in {"weight", "squared_weight", *hidden}}
    return shown | {"effective_sample_size": means["weight"] ** 2 / max(means["squared_weight"], 1e-30)}
