"""Torch's Adam for parameters that no compiler looks at."""

from __future__ import annotations

import inspect
from typing import Any

import torch


class Adam(torch.optim.Adam):
    """`torch.optim.Adam`, the same updates to the bit, that does not import Torch's compiler, which takes over a second.

    The methods are Torch's own, without the wrappers that tell the compiler to leave them alone, and the profiler of each step.
    """

    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
    add_param_group: Any = inspect.unwrap(torch.optim.Adam.add_param_group)
    load_state_dict: Any = inspect.unwrap(torch.optim.Adam.load_state_dict)
    state_dict: Any = inspect.unwrap(torch.optim.Adam.state_dict)


Adam.step.hooked = True  # or Torch would wrap it for hooks and the profiler: 20 µs a step
