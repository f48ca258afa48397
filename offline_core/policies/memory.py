"""The memory of a recurrent policy."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn


class Memory(nn.Module):
    """An LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014) over the features of successive steps.

    Its state is one tensor (S, state_size), zero before the first step: for an LSTM, hidden and cell state side by side.
    """

    def __init__(self, kind: Literal["lstm", "gru"], inputs: int, units: int) -> None:
        super().__init__()
        self.cell = (nn.LSTM if kind == "lstm" else nn.GRU)(inputs, units, batch_first=True)
        self.parts = 2 if kind == "lstm" else 1
        self.state_size = self.parts * units
        for name, parameter in self.cell.named_parameters():
            (nn.init.zeros_ if name.startswith("bias") else nn.init.orthogonal_)(parameter)

    def empty(self, sequences: int) -> Tensor:
        """The state before the first step: (sequences, state_size)."""
        return next(self.parameters()).new_zeros(sequences, self.state_size)

    def forward(self, features: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(S, L, inputs) and the state before (None: `empty`) → (S, L, units), and the state after."""
        if state is None:
            state = features.new_zeros(features.shape[0], self.state_size)
        parts = [part[None].contiguous() for part in state.chunk(self.parts, dim=1)]
        outputs, after = self.cell(features, tuple(parts) if self.parts == 2 else parts[0])
        return outputs, torch.cat([part[0] for part in (after if self.parts == 2 else [after])], dim=1)
