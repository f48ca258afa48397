"""Adam in one call of Torch an update."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor


class _Prepared(NamedTuple):
    """What is remembered of the parameters of an update, in their order."""

    averages: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]
    """Updates of each parameter; those that always learn together share a tensor."""
    counts: list[Tensor]
    """The tensors of `steps`, each once."""


class Adam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, the same updates to the bit, by one call for the parameters of a group.

    It does nothing else: Torch's own step sorts the parameters by device and type each time, tells the profiler, and imports
    Torch's compiler, which takes over a second.
    """

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, fused=True, **options)
        self._prepared: dict[tuple[int, ...], _Prepared] = {}
        """By the parameters of an update that have a gradient."""

    add_param_group: Any = inspect.unwrap(torch.optim.Adam.add_param_group)
    state_dict: Any = inspect.unwrap(torch.optim.Adam.state_dict)

    def load_state_dict(self, state_dict: Any) -> None:
        """Restore what `state_dict` returned."""
        inspect.unwrap(torch.optim.Adam.load_state_dict)(self, state_dict)
        self._prepared = {}

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            learned = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not learned:
                continue
            key = tuple(map(id, learned))
            prepared = self._prepared.get(key) or self._prepare(key, learned)
            for count in prepared.counts:
                count.add_(1)
            torch._fused_adam_(
                learned,
                [parameter.grad for parameter in learned],
                prepared.averages,
                prepared.squares,
                [],
                prepared.steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def _prepare(self, key: tuple[int, ...], learned: list[Tensor]) -> _Prepared:
        """Collect what is remembered of parameters that learn together, which count their steps by as few tensors as can be."""
        states = [self.state[parameter] or self._begun(parameter) for parameter in learned]
        owners = Counter(id(state["step"]) for state in self.state.values())
        here = Counter(id(state["step"]) for state in states)
        shared: dict[float, Tensor] = {}
        for state in states:
            step = state["step"]
            others = owners[id(step)] > here[id(step)]  # parameters that do not learn now
            count = shared.setdefault(float(step), step.clone() if others else step)
            if count is not step:
                state["step"] = count
                self._prepared = {}  # others may count by the tensor that was replaced
        counts = {id(state["step"]): state["step"] for state in states}
        prepared = _Prepared(
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [state["step"] for state in states],
            [*counts.values()],
        )
        self._prepared[key] = prepared
        return prepared

    def _begun(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return what is remembered of a parameter before its first update."""
        state: dict[str, Tensor] = self.state[parameter]
        state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state


Adam.step.hooked = True  # type: ignore[attr-defined]  # or Torch would wrap it for hooks and the profiler: 20 µs a step
