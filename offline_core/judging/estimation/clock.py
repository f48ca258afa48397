"""What a Q function of a fixed horizon knows of time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

KNOTS = 32


class Clock(nn.Module):
    """Features of the steps that remain until the horizon: what an action is worth there depends on them.

    The last one is the share of the discounts that are still to come, Σ γ^t over what remains by that over the horizon. A
    value is about proportional to it, and 0 where nothing remains. The others say where on a row of `KNOTS` knots the step
    is, between two of them in a line: up to that many steps each has its own, of more steps neighbours share.

    Arguments:
        horizon: steps in all.
        gamma: the discount a step.
    """

    def __init__(self, horizon: int, gamma: float) -> None:
        super().__init__()
        self.horizon, self.gamma = horizon, gamma
        self.knots = min(horizon, KNOTS)
        self.size = self.knots + 1

    def forward(self, remaining: Tensor) -> Tensor:
        """(B,) steps → (B, size) float32."""
        remaining = remaining.double()
        place = (remaining - 1) * ((self.knots - 1) / max(1, self.horizon - 1))
        near = (1 - (place[:, None] - torch.arange(self.knots)).abs()).clamp(min=0)
        return torch.cat([near, self.share(remaining)[:, None]], dim=1).float()

    def share(self, remaining: Tensor) -> Tensor:
        """Of the discounts, (B,) float64."""
        if self.gamma == 1:
            return remaining / self.horizon
        return (1 - self.gamma**remaining) / (1 - self.gamma**self.horizon)
