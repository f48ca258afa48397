"""The steps of an episode as the page draws them: named signals over time, and recorded frames; and what a policy would do."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import Episode, EpisodeBatch, columns, nested
from offline_core.data.episodes.nested import Nested
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names
from offline_core.keeping.homepage.facts import LEAST_DATE
from offline_core.runtime.units import date_text

MAX_SIGNALS = 16
"""Of a leaf of observations or actions."""
MAX_POINTS = 2_000
"""Of a signal; longer episodes are shown every so many steps."""
MAX_FRAMES, MAX_FRAME_SIDE = 24, 128
UNITS = (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0), ("seconds", 1.0))
"""Of a time on an axis, with their seconds: the first of which it has two."""
MAX_LABELS = 50
"""Choices that an axis names."""


class Clock(NamedTuple):
    """The time of each point of a signal."""

    name: str
    """Of the axis, with its unit."""
    values: np.ndarray
    """(points,)"""


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
    labels: Mapping[int, list[str]]
    """What the values of a signal are called, from 0 on: those of choices."""
    clock: Clock | None
    """When the points were; None: the episode does not say."""
    frames: Mapping[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """As the page's script reads it: little-endian float32 in base64."""
        more: dict[str, Any] = {} if self.frames is None else {"frames": dict(self.frames)}
        if self.clock is not None:
            more["clock"] = {"name": self.clock.name, "values": _base64(self.clock.values)}
        known = {"names": self.names, "values": _base64(self.values), "stride": self.stride, "steps": self.steps}
        return {**known, "out": self.left_out, "labels": dict(self.labels), **more}


def signals_of(episode: Episode, made_of: InputColumns | None = None, *, actions: Nested | None = None) -> Signals:
    """Observations, actions and rewards of an episode over time.

    Arguments:
        made_of: what the observations are made of.
        actions: of each step, in place of the recorded ones.
    """
    steps = len(episode)
    stride = max(1, -(-(steps + 1) // MAX_POINTS))
    names: list[list[str]] = []
    rows: list[np.ndarray] = []
    left_out = 0
    action = "action" if made_of is None or made_of.action is None else made_of.action
    groups = {
        "observations": nested.flatten(episode.get_observations(), "obs"),
        "actions": nested.flatten(episode.get_actions() if actions is None else actions, action),
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
    labels = _labels(episode.action_space, made_of)
    choices = {i: labels for i, name in enumerate(names) if name == ["actions", action] and labels}
    return Signals(names, values, stride, steps, left_out, choices, _clock(episode, stride), _frames(groups["observations"]))


def _labels(space: gym.Space[Any] | None, made_of: InputColumns | None) -> list[str]:
    """What a Discrete action is called, from 0 on; none if it is no such action, or there are too many to name."""
    if not isinstance(space, gym.spaces.Discrete) or int(space.start) != 0 or int(space.n) > MAX_LABELS:
        return []
    labels = None if made_of is None else made_of.labels
    return [str(number if labels is None else labels[number]) for number in range(int(space.n))]


def _clock(episode: Episode, stride: int) -> Clock | None:
    """What the column of times says; the last point, after the last step, is as far from it as that from the one before."""
    if columns.TIME not in episode.extras or len(episode) < 2:
        return None
    times = np.asarray(episode.get_extra(columns.TIME))
    if times.shape != (len(episode),) or times.dtype.kind not in "iuf":
        return None
    is_date = times.dtype.kind == "i" and int(times[0]) >= LEAST_DATE
    seconds = (times - times[0]) / 1e9 if is_date else times.astype(np.float64)
    if not np.isfinite(seconds).all() or not np.array_equal(seconds, np.sort(seconds)):
        return None
    name = "time, in the unit of the log"
    if is_date:
        unit, length = next(((unit, length) for unit, length in UNITS if seconds[-1] >= 2 * length), UNITS[-1])
        name, seconds = f"{unit} since {date_text(float(times[0]))}", seconds / length
    return Clock(name, np.append(seconds, 2 * seconds[-1] - seconds[-2])[::stride])


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


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


def actions_beside(dataset: Dataset, episode: Episode, policy: str) -> dict[str, Any]:
    """The greedy actions of a policy for the observations of an episode, by the names of the recorded ones.

    Arguments:
        policy: URI of a checkpoint.

    Raises:
        CheckpointError: the policy cannot be read.
        ConfigError: it does not fit the dataset.
    """
    from offline_core.judging.estimation.contenders import contenders_of
    from offline_core.judging.estimation.estimate import check_fits
    from offline_core.judging.estimation.observations import Observations
    from offline_core.judging.estimation.target import columns_read, distribution_inputs

    [contender] = contenders_of([policy], dataset)
    target = contender.policy
    check_fits(target, dataset)
    batch = EpisodeBatch.of([episode], (columns.OBS, columns.ACTIONS, *columns_read([target]))).flat()
    inputs = distribution_inputs(target, Observations(batch, target.observation_space))
    actions = target.head.to_env(target.head.mode(inputs))
    signals = signals_of(episode, dataset.manifest.input_columns, actions=actions).as_json()
    return {"policy": contender.name, "names": signals["names"], "values": signals["values"]}
