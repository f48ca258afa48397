"""Fitted Q evaluation: what actions are worth if a policy takes all later ones (Le, Voloshin & Yue 2019, arXiv 1903.08738)."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from offline_core.episodes import EpisodeBatch, columns, nested
from offline_core.errors import LearningError
from offline_core.estimation.clock import Clock
from offline_core.estimation.config import FQEConfig
from offline_core.estimation.logged import INPUTS
from offline_core.estimation.observations import Observations, rows_at_a_time, tensors_of
from offline_core.estimation.q_function import QFunction
from offline_core.estimation.trajectories import Model
from offline_core.policies.policy import Policy
from offline_core.runtime.progress import Bar, progress
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import torch_threads

UPDATES_BETWEEN_LOOKS = 100


def fit_model(
    logged: EpisodeBatch,
    policy: Policy,
    config: FQEConfig,
    *,
    gamma: float,
    horizon: int | None = None,
    explore: bool,
    returns: np.ndarray,
    together: np.ndarray,
    seed: int,
) -> Model:
    """Fits Q functions to recorded steps and says what each makes of the episodes that it was not fitted to.

    On those that it was, it would seem more certain than it is: its errors there are too small to weigh anything by
    (Chernozhukov et al. 2018, "Double/debiased machine learning", whose cross-fitting this is).

    Each update moves it to r + γ V(s') by the square of what it lacks, where V is that of a target network that follows it,
    and 0 after a terminal step. After a truncation it is not: that is no end. Of a fixed horizon, Q knows the steps that
    remain (`Clock`), and V is 0 after the last of them. The same arguments give the same numbers: Torch computes with one
    thread.

    Arguments:
        horizon: steps of an episode that count; `logged` has no others. None: all until it terminates.
        returns: (E,) discounted, that were recorded.
        together: (E,) int64; episodes with the same number are fitted to, or asked about, together.

    Raises:
        LearningError: it grew beyond every number.
    """
    steps = _Steps(logged, policy, horizon)
    network = config.network.model_copy(update={"frames": policy.network.frames})
    sizes = returns.std(), np.abs(returns).mean(), np.sqrt(np.square(steps.precise_rewards.numpy()).mean())
    folds = _folds(together, config.folds, seed=seed)
    start_values, end_values, errors = np.zeros(len(returns)), np.zeros(len(returns)), np.zeros(len(logged))
    with (
        torch_threads(1),
        torch.random.fork_rng(devices=[]),
        progress(config.updates * len(folds), what="fit", unit="update") as bar,
    ):
        for number, part in enumerate(folds):
            own = derive_seed(seed, "fqe", number)
            torch.manual_seed(own)
            function = QFunction(
                policy,
                network,
                center=float(returns.mean()),
                scale=float(max(sizes)) or 1.0,
                explore=explore,
                action_samples=config.action_samples,
                clock=None if horizon is None else Clock(horizon, gamma),
            )
            others = np.setdiff1d(np.arange(len(returns)), part) if len(folds) > 1 else part
            target = _fitted(function, steps, steps.of(others), config, gamma=gamma, seed=own, bar=bar)
            said = _said_of(target, steps, part, gamma=gamma, seed=own)
            start_values[part], errors[np.isin(steps.episode, part)], end_values[part] = said
    return Model(start_values, errors, end_values)


def _folds(together: np.ndarray, folds: int, *, seed: int) -> list[np.ndarray]:
    """Numbers of episodes, each in one part, sorted; those that belong together in the same."""
    order = np.random.default_rng(derive_seed(seed, "fqe", "folds")).permutation(np.unique(together))
    return [np.flatnonzero(np.isin(together, part)) for part in np.array_split(order, min(folds, len(order)))]


class _Steps:
    """The recorded steps by row."""

    def __init__(self, logged: EpisodeBatch, policy: Policy, horizon: int | None) -> None:
        self.policy = policy
        self.observations = Observations(logged, policy.observation_space)
        self.taken = tensors_of(logged, columns.ACTIONS)
        self.inputs = torch.from_numpy(logged[INPUTS])
        self.rows = torch.from_numpy(np.flatnonzero(logged.is_step))
        """(N,) the row of each; what follows is in the next."""
        self.remaining = (horizon or 0) - torch.from_numpy(np.arange(logged.rows) - logged.first)
        """(R,) steps that count from a row on, if there is a horizon."""
        self.goes_on = torch.ones(len(self.rows))
        """(N,) float32, 0 after a terminal step, and after the last that counts."""
        self.last = torch.from_numpy(np.cumsum(logged.lengths) - 1)
        """(E,) the last step of each episode."""
        self.goes_on[self.last[torch.from_numpy(logged.at_end(columns.TERMINATEDS))]] = 0.0
        if horizon is not None:
            self.goes_on[self.remaining[self.rows] == 1] = 0.0
        self.precise_rewards = torch.from_numpy(logged.of_steps(columns.REWARDS))
        self.rewards = self.precise_rewards.float()
        self.episode = np.repeat(np.arange(logged.num_episodes), logged.lengths)
        """(N,) its number."""

    def of(self, episodes: np.ndarray) -> Tensor:
        """Numbers of the steps of these episodes, in order."""
        return torch.from_numpy(np.flatnonzero(np.isin(self.episode, episodes)))

    def features(self, function: QFunction, rows: Tensor) -> Tensor:
        frames = self.policy.network.frames
        observations = self.observations.at(rows, frames=frames)
        return function.features(observations, frames=frames, remaining=self.remaining[rows])

    def actions(self, rows: Tensor) -> nested.Nested:
        taken = {path: leaf[rows] for path, leaf in self.taken.items()}
        return nested.unflatten(taken, columns.ACTIONS, self.policy.action_space)

    def in_parts(self, function: QFunction, rows: Tensor) -> tuple[Tensor, ...]:
        """As many at a time as the function may look at."""
        parts: tuple[Tensor, ...] = rows.split(rows_at_a_time(function.encoder, frames=self.policy.network.frames))
        return parts

    def fill_statistics(self, function: QFunction, steps: Tensor) -> None:
        """Of the filters that normalise what the function sees."""
        for rows in self.in_parts(function, self.rows[steps]):
            if function.encoder.normalize:
                function.encoder.update_statistics(self.observations.at(rows))
            if not function.listed:
                function.actions.update_statistics(self.actions(rows))


def _fitted(
    function: QFunction, steps: _Steps, learned: Tensor, config: FQEConfig, *, gamma: float, seed: int, bar: Bar
) -> QFunction:
    """The target network at the end, fitted to these steps: the mean of the last ones, and so smoother than any of them."""
    steps.fill_statistics(function, learned)
    generator = torch.Generator().manual_seed(derive_seed(seed, "actions"))
    target = copy.deepcopy(function).requires_grad_(False).eval()
    optimizer = torch.optim.Adam(function.parameters(), lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / config.updates)
    batches = _batches(learned, config.batch_size, seed=seed)
    for update in range(config.updates):
        batch = next(batches)
        rows = steps.rows[batch]
        with torch.no_grad():
            following = target.v(steps.features(target, rows + 1), steps.inputs[rows + 1], generator)
            wanted = steps.rewards[batch] + gamma * steps.goes_on[batch] * following
        q = function.q(steps.features(function, rows), steps.actions(rows))
        loss = functional.mse_loss(q / function.scale, wanted / function.scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for behind, ahead in zip(target.parameters(), function.parameters(), strict=True):
                behind.lerp_(ahead, config.target_rate)
            for own, now in zip(target.buffers(), function.buffers(), strict=True):
                own.copy_(now)
        if update % UPDATES_BETWEEN_LOOKS == 0 or update == config.updates - 1:
            if not torch.isfinite(loss):
                raise LearningError(
                    f"The Q function of fqe is NaN or infinite at update {update}: lower fqe.learning_rate or "
                    "fqe.target_rate, or choose methods that need none (is, wis, pdis, wpdis)."
                )
            bar.note(loss=loss.item())
        bar.update(1)
    return target


@torch.no_grad()
def _said_of(
    function: QFunction, steps: _Steps, episodes: np.ndarray, *, gamma: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(values of the start states, errors of the steps, values after the last step) of these episodes, see `Model`."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "last actions"))

    def values(rows: Tensor) -> Tensor:
        parts, inputs = steps.in_parts(function, rows), steps.inputs
        return torch.cat([function.v(steps.features(function, part), inputs[part], generator) for part in parts]).double()

    chosen = steps.of(episodes)
    taken = steps.in_parts(function, steps.rows[chosen])
    q = torch.cat([function.q(steps.features(function, part), steps.actions(part)) for part in taken]).double()
    following = steps.goes_on[chosen].double() * values(steps.rows[chosen] + 1)
    errors = steps.precise_rewards[chosen] + gamma * following - q
    ends = following[torch.isin(chosen, steps.last)]
    return values(steps.observations.starts[episodes]).numpy(), errors.numpy(), ends.numpy()


def _batches(steps: Tensor, size: int, *, seed: int) -> Iterator[Tensor]:
    """These numbers, each once before any comes again, without end; batches differ in size by one at most.

    So none is of a single step, of which layers that normalise a batch would know no variance.
    """
    count = math.ceil(len(steps) / size)
    generator = torch.Generator().manual_seed(derive_seed(seed, "order"))
    while True:
        yield from steps[torch.randperm(len(steps), generator=generator)].tensor_split(count)
