"""Functions that a GPU runs as one: their kernels are recorded once (a CUDA graph), and then launched all together."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from offline_core.errors import ConfigError

CALLS_BEFORE = 3
"""So often a function runs as it is: what is made once, as an optimiser's state, is there then. In the last of these calls
nothing may look at a number that the GPU computes, or the function is never recorded.
"""

log = logging.getLogger(__name__)


class Replayed:
    """A function of tensors on a GPU, whose kernels are recorded in its fourth call, and replayed from then on.

    Launching the 200 kernels of an update one by one takes several times as long as the GPU needs to run them. All that Python
    does in the function is done in the call that records it, and not again; so it has to do the same for the same arguments.
    What it returns is overwritten by the next call. Draws are from Torch's generator of the GPU, as it is at each call.

    Arguments:
        function: may change tensors.
        what: the subject of the sentence that says why the function is not recorded.

    Raises:
        ConfigError: The function does what cannot be recorded.
    """

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self.function = function
        self.what = what
        self._calls = 0
        self._can_be_recorded = True
        self._inputs: list[Tensor] = []
        self._kept: list[Tensor] = []
        self._output: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def is_recorded(self) -> bool:
        return self._graph is not None

    def __call__(self, *inputs: Tensor, kept: Sequence[Tensor]) -> Any:
        """Return what the function returns.

        Arguments:
            inputs: arguments of the function, of the same shapes in each call.
            kept: other tensors that the function uses. If one is replaced, the function is recorded again.
        """
        self._calls += 1
        if self._calls < CALLS_BEFORE or not self._can_be_recorded:
            return self.function(*inputs)
        if self._calls == CALLS_BEFORE:
            return self._tried(inputs)
        if len(kept) != len(self._kept) or any(one is not other for one, other in zip(kept, self._kept, strict=True)):
            self._record(inputs, kept)
        assert self._graph is not None
        for own, other in zip(self._inputs, inputs, strict=True):
            own.copy_(other)
        self._graph.replay()
        return self._output

    def _tried(self, inputs: tuple[Tensor, ...]) -> Any:
        """Run the function; where it looks at a number, say that it is not recorded, and run it as it is."""
        try:
            with _no_looks():
                return self.function(*inputs)
        except RuntimeError as error:
            if "synchroniz" not in str(error):
                raise
            log.warning("%s looks at numbers that the GPU computes, so its kernels are launched one by one.", self.what)
            self._can_be_recorded = False
            return self.function(*inputs)

    def _record(self, inputs: tuple[Tensor, ...], kept: Sequence[Tensor]) -> None:
        self._inputs, self._kept = [tensor.clone() for tensor in inputs], [*kept]
        self._graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._output = self.function(*self._inputs)
        except RuntimeError as error:
            raise ConfigError(
                f"{self.what} cannot be recorded for the GPU ({str(error).strip()}): set compute.compile to false."
            ) from error


@contextlib.contextmanager
def _no_looks() -> Iterator[None]:
    """Let all that waits for the GPU raise a RuntimeError inside the block."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Torch warns that it does not know all that waits
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
