"""Adam in one call of Torch an update."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor


class Adam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, the same updates to the bit, by one call for the parameters of a group.

    It does nothing else: Torch's own step sorts the parameters by device and type each time, tells the profiler, and imports
    Torch's compiler, which takes over a second.
    """

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, fused=True, **options)

    add_param_group: Any = inspect.unwrap(torch.optim.Adam.add_param_group)
    load_state_dict: Any = inspect.unwrap(torch.optim.Adam.load_state_dict)
    state_dict: Any = inspect.unwrap(torch.optim.Adam.state_dict)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            learned = [parameter for parameter in group["params"] if parameter.grad is not None]
            states = [self.state[parameter] or self._begun(parameter) for parameter in learned]
            steps = [state["step"] for state in states]
            if not learned:
                continue
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                learned,
                [parameter.grad for parameter in learned],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def _begun(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return what is remembered of a parameter before its first update."""
        state: dict[str, Tensor] = self.state[parameter]
        state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state


Adam.step.hooked = True  # type: ignore[attr-defined]  # or Torch would wrap it for hooks and the profiler: 20 µs a step
