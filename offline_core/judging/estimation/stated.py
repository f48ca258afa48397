"""Policies that are no checkpoints: what a rule, a function or an ONNX file answers to observations, or a column of the log
says of its steps, as inputs of a head."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import has_box, space_leaves
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.estimation.observations import Observations, rows_at_a_time
from offline_core.judging.estimation.rule import SqlRule
from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.config import NetworkConfig
from offline_core.policies.gaussian import BoxHead
from offline_core.policies.head import Head
from offline_core.policies.heads import make_head
from offline_core.policies.kind import kind_of
from offline_core.policies.manifest import PolicyManifest
from offline_core.runtime.extras import require_extra
from offline_core.runtime.user_code import UserCode, user_errors

PRECISION = 1e-3
"""How far the sum of all probabilities may be from 1."""


class DistributionInputs(NamedTuple):
    """An answer in the terms of the head itself, as exported policies give it."""

    array: np.ndarray
    """(B, inputs) float32."""


Answer = Callable[[Nested], Any]
"""A function of observations (B, …), nested as their space: see `FunctionOfObservations`."""


def stated(
    uri: str, name: str, log: Dataset, *, manifest: PolicyManifest | None, noise: float | None, code: UserCode | None
) -> FunctionOfObservations | ProbabilityColumn:
    """The policy of a rule, a function, an ONNX file or a column, tried on the first episode of the log.

    Arguments:
        uri, name, log, manifest, noise, code: of a `Contender`.

    Raises:
        ConfigError: It cannot be imported or read, fails, or answers what is no action of the log; or the log has actions
            that only checkpoints are judged on.
    """
    observation_space, action_space = log.spaces
    if observation_space is None or action_space is None:
        raise ConfigError(
            f"{name}: {log.location.uri} does not say its spaces, so what is an action is unknown. Import it first."
        )
    if action_space.shape is None:
        raise ConfigError(
            f"{name}: the actions of {log.location.uri} are {action_space}, of which only checkpoints are judged."
        )
    spaces, said, kind = (observation_space, action_space), uri.partition(":")[2].strip(), kind_of(uri)
    if kind == "column":
        return ProbabilityColumn(said, log, spaces)
    network = NetworkConfig() if manifest is None else manifest.network
    answer: Answer
    match kind:
        case "rule":
            answer = SqlRule(said, name, spaces, log.manifest.input_columns)
        case "onnx":
            answer = _model(uri, spaces, is_exported=manifest is not None)
        case _:
            assert code is not None
            answer = code.make("candidate")
            if not callable(answer):
                raise ConfigError(f"The candidate {name} cannot be called with observations.")
    policy = FunctionOfObservations(name, answer, spaces, network, noise=noise)
    first = log.first_episode()
    if first is not None and network.frames == 1:
        policy.inputs_of(first.get_observations(slice(len(first))))
    return policy


class FunctionOfObservations:
    """What answers to observations: a rule, a function, or the graph of an ONNX file.

    Of B observations it answers one of these, and the inputs of a head are made of it:

        actions (B, *shape)                  as the environment takes them: that action with probability 1; of a Box a
                                             Gaussian around it, of the width `noise`
        probabilities (B, n)                 of the n actions of a Discrete space
        (means, standard deviations)         (B, *shape) each, of a Box: a Gaussian that is clipped to its bounds

    What log-probabilities it has of actions that it draws itself would say nothing of those that were recorded.

    Arguments:
        network: of the policy that an ONNX file was exported from: how its actions are distributed, and its frames.
        noise: standard deviation, in units of the actions; None: none.
    """

    def __init__(
        self,
        name: str,
        answer: Answer,
        spaces: tuple[gym.Space[Any], gym.Space[Any]],
        network: NetworkConfig,
        *,
        noise: float | None,
    ) -> None:
        self.observation_space, self.action_space = spaces
        self.name, self.network, self.noise = name, network, noise
        self.head = cast(Head, make_head(self.action_space, 2, network))
        self.is_certain = False
        """Whether the policy has one point of a Box in each state, so that no recorded action is ever the one of it."""
        self._answer = answer

    def inputs_at(self, observations: Observations) -> Tensor:
        """The inputs of its head for each observation, (R, inputs) float32.

        What follows a terminal step is never asked about: it may be anything.

        Raises:
            ConfigError: It fails, or does not answer as it has to.
        """
        frames = self.network.frames
        asked = _asked(observations.batch)
        size = sum(map(gym.spaces.flatdim, space_leaves(self.observation_space, columns.OBS).values()))
        parts = torch.from_numpy(np.flatnonzero(asked)).split(rows_at_a_time(size, frames=frames))
        inputs = [
            self.inputs_of(nested.map_leaves(lambda leaf: leaf.numpy(), observations.at(part, frames=frames))) for part in parts
        ]
        return torch.cat(inputs)[torch.from_numpy(np.cumsum(asked) - 1)]

    def inputs_of(self, observations: Nested) -> Tensor:
        """(B, inputs) float32 for observations (B, …).

        Raises:
            ConfigError: It fails, or does not answer as it has to.
        """
        count = len(nested.leaves(observations)[0])
        with user_errors(f"candidate {self.name}", f"on {count:,} observations", ConfigError):
            said = self._answer(observations)
        if isinstance(said, DistributionInputs):
            return self._checked(said.array, count)
        if isinstance(said, tuple):
            return self._gaussian(said, count)
        array = self._array(said, count)
        space = self.action_space
        if isinstance(space, gym.spaces.Discrete) and array.shape == (count, int(space.n)) and int(space.n) > 1:
            return torch.from_numpy(log_chances(array, self.name)).float()
        return self._acting(array, count)

    def _array(self, said: Any, count: int) -> np.ndarray:
        try:
            array = np.asarray(said)
        except Exception as error:  # it may be anything
            raise ConfigError(f"The candidate {self.name} answers {type(said).__name__}, which is no array.") from error
        if array.dtype.kind not in "biuf":
            self._refuse(f"answers {array.dtype if array.dtype != object else type(said).__name__} and not numbers")
        if array.ndim == 0 or len(array) != count:
            self._refuse(f"gives {'one answer' if array.ndim == 0 else f'{len(array):,} answers'} to {count:,} observations")
        if not np.isfinite(array).all():
            self._refuse("answers NaN or infinity")
        return array

    def _checked(self, array: np.ndarray, count: int) -> Tensor:
        if array.shape != (count, self.head.inputs_size):
            self._refuse(
                f"has distribution inputs of shape {array.shape} for {count:,} observations, and {self.head.inputs_size} are "
                f"needed for each, of {self.action_space}: it was exported for other actions"
            )
        return torch.from_numpy(np.ascontiguousarray(array, np.float32))

    def _gaussian(self, said: tuple[Any, ...], count: int) -> Tensor:
        if not isinstance(self.action_space, gym.spaces.Box) or len(said) != 2:
            self._refuse(f"answers a tuple of {len(said)}: a pair is (means, standard deviations), of actions in a Box")
        mean, deviation = (self._array(values, count) for values in said)
        shape = (count, *(self.action_space.shape or ()))
        if (mean.shape, deviation.shape) != (shape, shape) or not (deviation > 0).all():
            self._refuse(
                f"answers means of shape {mean.shape} and standard deviations of {deviation.shape}; both have to be {shape}, "
                "and deviations above 0"
            )
        return _normal(mean.reshape(count, -1), np.log(deviation.reshape(count, -1)))

    def _acting(self, actions: np.ndarray, count: int) -> Tensor:
        shape = (count, *(self.action_space.shape or ()))
        if actions.shape != shape and actions.size == math.prod(shape) and actions.size == count:
            actions = actions.reshape(shape)
        if actions.shape != shape:
            self._refuse(
                f"answers shape {actions.shape} to {count:,} observations; actions of {self.action_space} have {shape}"
            )
        if isinstance(self.head, CategoricalHead):
            flat = actions.reshape(count, -1).astype(np.float64)
            low, sizes = np.asarray(self.head.starts.numpy(), np.int64), np.asarray(self.head.sizes)
            self._check_within(actions, (flat < low) | (flat >= low + sizes) | (flat != np.floor(flat)))
            chosen = torch.from_numpy(flat.astype(np.int64) - low)
            parts = [
                torch.full((count, size), -torch.inf).scatter(1, chosen[:, [component]], 0.0)
                for component, size in enumerate(self.head.sizes)
            ]
            return torch.cat(parts, dim=1)
        assert isinstance(self.head, BoxHead)
        rounded = actions.astype(self.action_space.dtype)
        self._check_within(actions, (rounded < self.action_space.low) | (rounded > self.action_space.high))  # type: ignore[attr-defined]
        self.is_certain = self.noise is None
        mean = actions.reshape(count, -1)
        return _normal(mean, np.full(mean.shape, -np.inf if self.noise is None else math.log(self.noise)))

    def _check_within(self, actions: np.ndarray, wrong: np.ndarray) -> None:
        if not wrong.any():
            return
        rows: np.ndarray = np.asarray(wrong.reshape(len(wrong), -1).any(axis=1))
        low_high = (
            "least(20, greatest(10, …))" if isinstance(self.action_space, gym.spaces.Box) else "a whole number among them"
        )
        self._refuse(
            f"answers {actions[rows.argmax()]} to an observation, and outside {self.action_space} to {rows.sum():,} of "
            f"{len(rows):,} that were read together: limit it, such as {low_high}"
        )

    def _refuse(self, reason: str) -> NoReturn:
        raise ConfigError(f"The candidate {self.name} {reason}.")


class ProbabilityColumn:
    """A column of the log with what another policy would have done: the probability of the recorded action, or of all actions.

    Raises:
        ConfigError: There is no such column, or it is neither.
    """

    def __init__(self, column: str, log: Dataset, spaces: tuple[gym.Space[Any], gym.Space[Any]]) -> None:
        self.observation_space, self.action_space = spaces
        self.network, self.column = NetworkConfig(), column
        first = log.first_episode()
        extras = {} if first is None else first.extras
        if column not in extras or not isinstance(extras[column], np.ndarray):
            names = ", ".join(extras) or "none"
            raise ConfigError(
                f"The log has no column {column!r} besides observations, actions and rewards; there are: {names}."
            )
        shape = extras[column].shape[1:]
        n = int(self.action_space.n) if isinstance(self.action_space, gym.spaces.Discrete) else 0
        self.says_all = n > 1 and shape == (n,)
        """Whether the column has probabilities of all actions, and not of the recorded one alone."""
        if not self.says_all and math.prod(shape) != 1:
            raise ConfigError(
                f"Column {column!r} has values of shape {shape} a step: it has to be one number, the probability of the "
                f"recorded action{f', or {n} of them, of all actions' if n else ''}."
            )
        self.head = cast(Head, make_head(self.action_space, 2) if self.says_all else RecordedChance())

    def inputs_at(self, observations: Observations) -> Tensor:
        """The inputs of its head for each observation, (R, inputs) float32.

        Raises:
            ConfigError: The column has numbers that are no probabilities.
        """
        values = observations.batch[self.column]
        name = f"column {self.column!r}"
        if self.says_all:
            return torch.from_numpy(log_chances(values, name)).float()
        values = values.reshape(len(values), 1).astype(np.float64)
        check_chances(values, name, most=np.inf if has_box(self.action_space) else 1.0)
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(values)).float()


class RecordedChance:
    """The head of a policy of which the probability of the recorded action alone is known: its input is its logarithm."""

    inputs_size = 1

    def log_prob(self, inputs: Tensor, _: Nested) -> Tensor:
        """(B,) log-probabilities out of inputs (B, 1)."""
        return inputs.squeeze(1)


def check_chances(values: np.ndarray, name: str, *, most: float) -> None:
    """Raise a ConfigError if values are no probabilities, or no densities where `most` is infinite."""
    wrong = ~((values >= 0) & (values <= most * (1 + PRECISION)))
    if wrong.any():
        hint = " Logarithms of probabilities have to be raised to e first." if not (values > 0).any() else ""
        between = "densities, which are 0 or more" if math.isinf(most) else "probabilities between 0 and 1"
        raise ConfigError(f"The candidate {name} says {values[wrong][0]:.6g}, and it has to say {between}.{hint}")


def log_chances(values: np.ndarray, name: str) -> np.ndarray:
    """(B, n) logarithms of the probabilities (B, n) of all actions.

    Raises:
        ConfigError: They are no such probabilities.
    """
    values = values.astype(np.float64)
    check_chances(values, name, most=1.0)
    sums = values.sum(axis=1)
    off: np.ndarray = np.abs(sums - 1) > PRECISION
    if off.any():
        raise ConfigError(
            f"The candidate {name} says probabilities of all {values.shape[1]} actions that sum up to {sums[off][0]:.6g} in "
            f"{off.sum():,} of {len(off):,} steps that were read together, and it has to be 1."
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _asked(batch: EpisodeBatch) -> np.ndarray:
    """(R,) bool: the steps, and what follows the last one of an episode that did not terminate."""
    asked = batch.is_step.copy()
    if batch.has_last:
        ends = batch.at_end(columns.TERMINATEDS).astype(bool) if columns.TERMINATEDS in batch else False
        asked[batch.offsets[1:] - 1] = ~np.broadcast_to(ends, batch.num_episodes)
    return asked


def _normal(mean: np.ndarray, log_deviation: np.ndarray) -> Tensor:
    return torch.from_numpy(np.concatenate([mean, log_deviation], axis=1).astype(np.float32))


def _model(uri: str, spaces: tuple[gym.Space[Any], gym.Space[Any]], *, is_exported: bool) -> Answer:
    """The graph of an ONNX file, as a function of observations.

    The file is one that 'offline export-policy' wrote, or it has one output. Its distribution inputs are taken where it is
    known how they are meant: of a Box that is so where the export's manifest says whether the policy squashes.
    """
    with require_extra("onnx"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(Location.of(uri).read(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises types of its own
        raise ConfigError(f"{uri} is no ONNX model that can be run: {str(error)[:200]}") from error
    ports = {port.name: _DTYPES.get(port.type) for port in session.get_inputs()}
    outputs = [port.name for port in session.get_outputs()]
    leaves = [*space_leaves(spaces[0], columns.OBS)]
    if len(ports) != len(leaves) or (len(leaves) > 1 and set(ports) != set(leaves)):
        raise ConfigError(f"{uri} has the inputs {', '.join(ports)}; the log's observations are {', '.join(leaves)}.")
    says_inputs = is_exported or not isinstance(spaces[1], gym.spaces.Box)
    if columns.ACTION_DIST_INPUTS in outputs and says_inputs:
        wanted = columns.ACTION_DIST_INPUTS
    elif len(outputs) == 1 or columns.ACTIONS in outputs:
        wanted = columns.ACTIONS if columns.ACTIONS in outputs else outputs[0]
    else:
        raise ConfigError(
            f"{uri} has the outputs {', '.join(outputs)}: it has to have one, of actions or of the probabilities of "
            "all, or to be written by 'offline export-policy'."
        )

    def answer(observations: Nested) -> Any:
        flat = nested.flatten(observations, columns.OBS)
        fed = {
            name: flat[name if name in flat else leaves[0]].astype(dtype or np.float32, copy=False)
            for name, dtype in ports.items()
        }
        [output] = session.run([wanted], fed)
        return DistributionInputs(output) if wanted == columns.ACTION_DIST_INPUTS else output

    return answer


_DTYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
"""Types of arrays, by type of the inputs of an ONNX model."""
