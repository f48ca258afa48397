"""The steps of an episode as the page draws them: named signals over time, and recorded frames."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from offline_core.data.episodes import Episode, nested
from offline_core.data.episodes.nested import Nested
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names

MAX_SIGNALS = 16
"""Of a leaf of observations or actions."""
MAX_POINTS = 2_000
"""Of a signal; longer episodes are shown every so many steps."""
MAX_FRAMES, MAX_FRAME_SIDE = 24, 128


@dataclass(frozen=True, slots=True)
class Signals:
    """Of one episode, shown every `stride` steps."""

    names: list[list[str]]
    """[group, name] of each signal."""
    values: np.ndarray
    """(signals, points) float32; the last point, after the last step, has no action and no reward: NaN."""
    stride: int
    steps: int
    left_out: int
    """Numbers of a step that are no signal."""
    frames: Mapping[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """As the page's script reads it: little-endian float32 in base64."""
        values = base64.b64encode(self.values.astype("<f4").tobytes()).decode("ascii")
        more = {} if self.frames is None else {"frames": dict(self.frames)}
        return {"names": self.names, "values": values, "stride": self.stride, "steps": self.steps, "out": self.left_out} | more


def signals_of(episode: Episode, made_of: InputColumns | None = None) -> Signals:
    """Observations, actions and rewards of an episode over time; `made_of` is what the observations are made of."""
    steps = len(episode)
    stride = max(1, -(-(steps + 1) // MAX_POINTS))
    names: list[list[str]] = []
    rows: list[np.ndarray] = []
    left_out = 0
    groups = {
        "observations": nested.flatten(episode.get_observations(), "obs"),
        "actions": nested.flatten(episode.get_actions(), "action"),
        "rewards": {"reward": np.asarray(episode.get_rewards())},
    }
    for group, leaves in groups.items():
        for leaf, values in leaves.items():
            if values.dtype.kind not in "biuf" or _is_picture(values):
                continue
            flat = values.reshape(len(values), -1)
            left_out += max(0, flat.shape[1] - MAX_SIGNALS)
            called = number_names(leaf, flat.shape[1], made_of)
            for i in range(min(flat.shape[1], MAX_SIGNALS)):
                names.append([group, called[i]])
                rows.append(_points(flat[:, i], steps)[::stride])
    values = np.stack(rows) if rows else np.zeros((0, 0), np.float32)
    return Signals(names, values, stride, steps, left_out, _frames(groups["observations"]))


def _points(values: np.ndarray, steps: int) -> np.ndarray:
    points = np.full(steps + 1, np.nan, np.float32)
    with np.errstate(over="ignore"):
        points[: len(values)] = values
    return points


def _is_picture(values: np.ndarray) -> bool:
    """(T, H, W) or (T, H, W, 1, 3 or 4) bytes."""
    sides = values.shape[1:]
    return values.dtype == np.uint8 and len(sides) in (2, 3) and min(sides[:2]) >= 8 and sides[2:] in ((), (1,), (3,), (4,))


def _frames(observations: Mapping[str, Nested]) -> dict[str, Any] | None:
    """The recorded pictures of an episode, one above the other in one PNG; None: its observations are none."""
    pictures = next((values for values in observations.values() if _is_picture(values)), None)
    if pictures is None or not len(pictures):
        return None
    from PIL import Image

    shown = np.unique(np.linspace(0, len(pictures) - 1, MAX_FRAMES).astype(int))
    smaller = -(-max(pictures.shape[1:3]) // MAX_FRAME_SIDE)
    few = pictures[shown][:, ::smaller, ::smaller]
    few = few[..., 0] if few.ndim == 4 and few.shape[3] == 1 else few
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(few.reshape(-1, *few.shape[2:]))).save(file, "PNG", optimize=True)
    png = base64.b64encode(file.getvalue()).decode("ascii")
    return {"png": png, "steps": shown.tolist(), "height": few.shape[1], "width": few.shape[2]}
