"""One thread for Torch: many small networks are fastest that way, and several tests run side by side."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
