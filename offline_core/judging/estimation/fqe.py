"""Fitted Q evaluation: what actions are worth if a policy takes all later ones (Le, Voloshin & Yue 2019, arXiv 1903.08738).

Q functions of several policies, parts of the episodes and members of an ensemble are fitted together, as one batched network.
Where a log is of one step and few contexts, a table of means takes their place, see `QTable`. Where nothing follows a step, as
in any log of one step, held-out episodes say when they are fitted, see `BestWeights`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.errors import LearningError
from offline_core.judging.estimation.config import FQEConfig
from offline_core.judging.estimation.held_out import MOST_STEPS, BestWeights, held_out_of, look_after
from offline_core.judging.estimation.logged import inputs_of
from offline_core.judging.estimation.observations import BYTES_AT_A_TIME, Observations, rows_at_a_time, tensors_of
from offline_core.judging.estimation.q_function import QFunction, chosen, is_listed, taken
from offline_core.judging.estimation.q_table import QTable, Said, fitted_to
from offline_core.judging.estimation.target import TargetPolicy
from offline_core.judging.estimation.trajectories import Model, spooled
from offline_core.policies.head import Head
from offline_core.runtime.adam import Adam
from offline_core.runtime.progress import Bar, progress
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import torch_threads

UPDATES_BETWEEN_LOOKS = 100


class FQESteps:
    """N steps in R rows, and what policies would do in them.

    Arguments:
        logged: with observations, actions and distribution inputs, see `LogReader`.
        policies: those of the inputs.
        horizon: steps that count; None: all until the episode terminates.
    """

    def __init__(self, logged: EpisodeBatch, policies: Sequence[TargetPolicy], horizon: int | None) -> None:
        self.observations = Observations(logged, policies[0].observation_space)
        self._taken = tensors_of(logged, columns.ACTIONS, policies[0].action_space)
        self.inputs = [torch.from_numpy(logged[inputs_of(number)]) for number in range(len(policies))]
        """The distribution inputs of each policy, (R, inputs)."""
        self.rows = torch.from_numpy(np.flatnonzero(logged.is_step))
        """(N,) the row of each step; what follows the step is in the next row."""
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
        self._lengths = logged.lengths

    def of(self, episodes: np.ndarray) -> Tensor:
        """Numbers of the steps of the episodes where (E,) bool is True, in order."""
        return torch.from_numpy(np.flatnonzero(np.repeat(episodes, self._lengths)))

    def actions(self, rows: Tensor) -> nested.Nested:
        """What was done in rows, nested (*rows, …)."""
        return nested.map_leaves(lambda leaf: leaf[rows], self._taken)

    def in_parts(self, function: QFunction, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows in parts, each of as many as the function may look at together."""
        parts: tuple[Tensor, ...] = rows.split(rows_at_a_time(function.encoder.size, frames=function.frames))
        return parts

    def values(self, function: QFunction, rows: Tensor, acting: Callable[[Tensor], nested.Nested]) -> Tensor:
        """What the function says of rows, (rows,) float64.

        Arguments:
            acting: gives the actions in some rows as the function takes them.
        """
        parts = self.in_parts(function, rows)
        seen = ((self.observations.at(part, frames=function.frames), self.remaining[part], acting(part)) for part in parts)
        return torch.cat([function(*part) for part in seen]).double()

    def done(self, head: Head, rows: Tensor) -> nested.Nested:
        """What was done in rows, as a `QFunction` takes it."""
        return taken(head, self.actions(rows))

    def fill_statistics(self, function: QFunction, steps: Tensor) -> None:
        """Fill the statistics by which the function's filters normalise what it sees."""
        for rows in self.in_parts(function, self.rows[steps]):
            if function.encoder.normalize:
                function.encoder.update_statistics(self.observations.at(rows))
            if not function.listed:
                function.actions.update_statistics(self.actions(rows))


class Member(NamedTuple):
    """A Q function of an ensemble, fitted to the episodes of other parts than its own."""

    function: QFunction
    part: int
    policy: int
    number: int
    """Within the ensemble."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Q functions of policies, and which episodes each has not seen."""

    members: list[Member]
    """An ensemble for each part of the episodes and each policy."""
    part: np.ndarray
    """(E,) int64, the part of each episode."""
    policies: Sequence[TargetPolicy]
    config: FQEConfig
    gamma: float
    horizon: int | None
    explore: bool
    seed: int

    def said_of(self, batch: EpisodeBatch, part: np.ndarray) -> Iterator[Said]:
        """What `QTable.said_of` gives, as the mean of an ensemble."""
        steps = FQESteps(batch, self.policies, self.horizon)
        for place, policy in enumerate(self.policies):
            start_values, errors, ends = np.zeros(len(part)), np.zeros(len(steps.rows)), np.zeros(len(part))
            for number in np.unique(part):
                functions = [member.function for member in self.members if (member.part, member.policy) == (number, place)]
                own = part == number
                rows = steps.of(own)
                generator = torch.Generator().manual_seed(derive_seed(self.seed, "last actions"))
                would, done = partial(self.would_do, place, steps, generator), partial(steps.done, policy.head)
                values = _mean(steps.values(function, steps.rows[rows] + 1, would) for function in functions)
                following = steps.goes_on[rows].double() * values
                q = _mean(steps.values(function, steps.rows[rows], done) for function in functions)
                errors[rows.numpy()] = (steps.precise_rewards[rows] + self.gamma * following - q).numpy()
                ends[own] = following[torch.isin(rows, steps.last)].numpy()
                starts = steps.observations.starts[torch.from_numpy(np.flatnonzero(own))]
                start_values[own] = _mean(steps.values(function, starts, would) for function in functions).numpy()
            yield start_values, errors, ends

    def would_do(self, policy: int, steps: FQESteps, generator: Generator, rows: Tensor) -> nested.Nested:
        """What a policy would do in rows, as a `QFunction` takes it."""
        head, samples = self.policies[policy].head, self.config.action_samples
        return chosen(head, steps.inputs[policy][rows], explore=self.explore, samples=samples, generator=generator)


def fit(
    logged: EpisodeBatch,
    policies: Sequence[TargetPolicy],
    config: FQEConfig,
    *,
    gamma: float,
    horizon: int | None = None,
    explore: bool,
    returns: np.ndarray,
    together: np.ndarray,
    seed: int,
) -> Fitted | QTable:
    """Fit Q functions to recorded steps, for each part of the episodes one that has not seen it.

    Of episodes that it was fitted to, a function seems more certain than it is: its errors there are too small to weigh
    anything by (Chernozhukov et al. 2018, "Double/debiased machine learning", whose cross-fitting this is).

    Each update moves it to r + γ V(s') by the square of what it lacks, where V is that of a target network that follows it,
    and 0 after a terminal step. After a truncation it is not: that is no end. Of a fixed horizon, Q knows the steps that
    remain (`RemainingSteps`), and V is 0 after the last of them. The same arguments give the same numbers: Torch computes
    with one thread.

    Where V counts nowhere, as in a log of one step, a function is a regression of rewards in which no policy has a part. It is
    fitted once for all policies, and has the weights with the lowest loss on a fifth of its episodes that it does not learn
    from: after many updates on noisy rewards it would be what it has memorised, and its errors elsewhere the larger for it.
    Where V counts, that loss is no yardstick, since V moves along with Q and is easiest to hit while both have not grown yet;
    there all updates are made, with all episodes.

    Arguments:
        logged: with the columns of a `LogReader` that are seen by Q functions.
        horizon: steps of an episode that count; `logged` has no others. None: all until it terminates.
        returns: (E,) discounted, that were recorded.
        together: (E,) int64; episodes with the same number are fitted to, or asked about, together.

    Raises:
        LearningError: One grew beyond every number.
    """
    part = _parts(together, config.folds, seed=seed)
    if (table := QTable.of(logged, policies, part, horizon=horizon, explore=explore)) is not None:
        return table
    steps = FQESteps(logged, policies, horizon)
    sizes = returns.std(), np.abs(returns).mean(), np.sqrt(np.square(steps.precise_rewards.numpy()).mean())
    scale = {"center": float(returns.mean()), "scale": float(max(sizes)) or 1.0}
    bootstraps = gamma > 0 and bool(steps.goes_on.any())
    held_out = None if bootstraps else held_out_of(together, part, seed=seed)
    shared_by = [place if bootstraps else _shape_of(policy) for place, policy in enumerate(policies)]
    updates = config.updates * len({*shared_by}) * (int(part.max()) + 1) * config.ensemble
    with (
        torch_threads(1),
        torch.random.fork_rng(devices=[]),
        progress(updates, what="fit Q functions", unit="update") as bar,
    ):
        members: list[Member] = []
        for number in range(part.max() + 1):
            learned, made = steps.of(fitted_to(part, number)), dict[Any, QFunction]()
            for place, policy in enumerate(policies):
                for member in range(config.ensemble):
                    if (which := (shared_by[place], member)) not in made:
                        torch.manual_seed(derive_seed(seed, "fqe", number, *([member] if member else [])))
                        function = QFunction(policy, config.network, **scale, horizon=horizon, gamma=gamma)
                        steps.fill_statistics(function.requires_grad_(True), learned)
                        made[which] = function
                    members.append(Member(made[which], number, place, member))
        fitted = Fitted(members, part, policies, config, gamma, horizon, explore, seed)
        for group in _groups(fitted):
            _fit_together(fitted, group, steps, held_out, bar)
    return fitted


@torch.no_grad()
def say(fitted: Fitted | QTable, batches: Iterable[tuple[np.ndarray, EpisodeBatch]], lengths: np.ndarray) -> list[Model]:
    """What the function that has not seen an episode says of it, for each policy.

    Arguments:
        batches: (numbers of episodes, these episodes as `fit` takes them), all in their order. Episodes that `fit` has not
            seen have numbers from that of the last one on.
        lengths: (E,) of all of these episodes in steps.
    """
    policies, parts = len(fitted.policies), int(fitted.part.max()) + 1
    starts, errors, ends = (
        spooled(policies, len(lengths)),
        spooled(policies, int(lengths.sum())),
        spooled(policies, len(lengths)),
    )
    episode = step = 0
    with torch_threads(1):
        for numbers, batch in batches:
            known = numbers < len(fitted.part)
            part = np.where(known, fitted.part[np.where(known, numbers, 0)], numbers % parts)
            now, steps = slice(episode, episode + batch.num_episodes), slice(step, step + len(batch))
            for policy, said in enumerate(fitted.said_of(batch, part)):
                starts[policy, now], errors[policy, steps], ends[policy, now] = said
            episode, step = now.stop, steps.stop
    return [Model(*of_policy) for of_policy in zip(starts, errors, ends, strict=True)]


def _mean(values: Iterable[Tensor]) -> Tensor:
    return torch.stack([*values]).mean(dim=0)


def _parts(together: np.ndarray, folds: int, *, seed: int) -> np.ndarray:
    """(E,) the part of each episode; episodes that belong together are in the same part."""
    order = np.random.default_rng(derive_seed(seed, "fqe", "folds")).permutation(np.unique(together))
    parts = np.zeros(len(together), np.int64)
    for number, part in enumerate(np.array_split(order, min(folds, len(order)))):
        parts[np.isin(together, part)] = number
    return parts


def _groups(fitted: Fitted) -> Iterator[list[Member]]:
    """Yield functions that are fitted at once: of one shape, and as many as fit into memory with their batches.

    A function that several policies share is that of the first of them here.
    """
    shapes: dict[Any, list[Member]] = {}
    known: set[QFunction] = set()
    for member in fitted.members:
        if member.function not in known:
            known.add(member.function)
            shapes.setdefault(_shape_of(fitted.policies[member.policy]), []).append(member)
    for alike in shapes.values():
        frames = fitted.policies[alike[0].policy].network.frames
        bytes_each = 4 * fitted.config.batch_size * frames * max(1, alike[0].function.encoder.size)
        at_once = max(1, BYTES_AT_A_TIME // bytes_each)
        yield from (alike[begin : begin + at_once] for begin in range(0, len(alike), at_once))


def _shape_of(policy: TargetPolicy) -> tuple[Any, ...]:
    """What of a policy a Q function's layers depend on, beside its spaces."""
    return policy.network.frames, policy.network.image_layout, is_listed(policy.head)


def _fit_together(fitted: Fitted, group: Sequence[Member], steps: FQESteps, held_out: np.ndarray | None, bar: Bar) -> None:
    """Fit the functions of a group.

    Each ends as its target network: that is a mean of its last states, and so smoother than any of them.

    Arguments:
        held_out: (E,) bool, the episodes that no function learns from and that say which of its weights are best. None: its
            last ones are, after all updates.
    """
    config, head = fitted.config, fitted.policies[group[0].policy].head
    parameters, buffers = torch.func.stack_module_state([member.function for member in group])
    base = copy.deepcopy(group[0].function).requires_grad_(False)
    learning, target = _together(base), _together(copy.deepcopy(base).eval())
    targets = {name: tensor.detach().clone() for name, tensor in parameters.items()}
    behind, ahead = [*targets.values()], [*parameters.values()]
    optimizer = Adam([{"params": ahead, "lr": config.learning_rate}])
    episodes = {number: fitted_to(fitted.part, number) for number in {member.part for member in group}}
    learned = {number: steps.of(own if held_out is None else own & ~held_out) for number, own in episodes.items()}
    size = min(config.batch_size, *map(len, learned.values()))
    batches = {number: _batches(rows, size, seed=derive_seed(fitted.seed, "fqe", number)) for number, rows in learned.items()}
    generators = [
        torch.Generator().manual_seed(derive_seed(fitted.seed, "actions", member.part, member.number)) for member in group
    ]
    scale, has_future = base.scale, bool(steps.goes_on.any())  # no click has one
    best = BestWeights([member.function for member in group])
    looked_at = {} if held_out is None else {number: _some(steps.of(own & held_out)) for number, own in episodes.items()}
    look_at = -(-max(map(len, learned.values())) // size)  # by then each step was seen: before, none can be memorised
    for update in range(config.updates):
        if held_out is not None and update == look_at:
            look_at = look_after(update)
            _store(group, targets, buffers)
            best.look(_losses(group, head, steps, looked_at, update))
            if best.are_found:
                break
        drawn = {number: next(batch) for number, batch in batches.items()}
        numbers = torch.stack([drawn[member.part] for member in group])
        rows = steps.rows[numbers]
        wanted = steps.rewards[numbers]
        if has_future:
            with torch.no_grad():
                choices = [
                    fitted.would_do(member.policy, steps, own, to)
                    for member, own, to in zip(group, generators, rows + 1, strict=True)
                ]
                after = steps.observations.at(rows + 1, frames=base.frames)
                following = target(targets, buffers, after, steps.remaining[rows + 1], _stacked(choices))
                wanted = wanted + fitted.gamma * steps.goes_on[numbers] * following
        done = taken(head, nested.map_leaves(lambda leaf: leaf.flatten(0, 1), steps.actions(rows)))
        done = nested.map_leaves(lambda leaf: leaf.unflatten(0, rows.shape), done)  # noqa: B023
        before = steps.observations.at(rows, frames=base.frames)
        q = learning(parameters, buffers, before, steps.remaining[rows], done)
        losses = ((q - wanted) / scale).square().mean(dim=1)
        optimizer.zero_grad()
        losses.sum().backward()
        for rates in optimizer.param_groups:
            rates["lr"] = config.learning_rate * (1 - update / config.updates)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(behind, ahead, config.target_rate)
        if update % UPDATES_BETWEEN_LOOKS == 0 or update == config.updates - 1:
            _refuse_infinite(losses, update)
            bar.note(loss=losses.mean().item())
        bar.update(len(group))
    _store(group, targets, buffers)
    if held_out is not None:
        best.look(_losses(group, head, steps, looked_at, config.updates))
        best.restore()


@torch.no_grad()
def _store(group: Sequence[Member], parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
    """Give the functions of a group their weights, which are stacked in the order of the group."""
    for number, member in enumerate(group):
        for name, parameter in member.function.named_parameters():
            parameter.copy_(parameters[name][number])
        for name, buffer in member.function.named_buffers():
            buffer.copy_(buffers[name][number])
        member.function.requires_grad_(False).eval()


@torch.no_grad()
def _losses(group: Sequence[Member], head: Head, steps: FQESteps, looked_at: Mapping[int, Tensor], update: int) -> list[float]:
    """The mean square of what each function of a group lacks of the rewards of some steps, which nothing follows.

    Arguments:
        looked_at: numbers of steps, by the part of a function.
    """
    losses = []
    for member in group:
        numbers = looked_at[member.part]
        said = steps.values(member.function, steps.rows[numbers], partial(steps.done, head))
        losses.append((said - steps.rewards[numbers]).square().mean())
    _refuse_infinite(torch.stack(losses), update)
    return [float(loss) for loss in losses]


def _refuse_infinite(losses: Tensor, update: int) -> None:
    if not torch.isfinite(losses).all():
        raise LearningError(
            f"The Q function of fqe is NaN or infinite at update {update}: lower fqe.learning_rate or fqe.target_rate, or "
            "choose methods that need none (is, wis, pdis, wpdis)."
        )


def _some(numbers: Tensor) -> Tensor:
    """`MOST_STEPS` numbers at most, spread over all."""
    return numbers[:: -(-len(numbers) // MOST_STEPS)]


def _together(function: QFunction) -> Callable[..., Tensor]:
    """A function of stacked weights, buffers and batches, (functions, …) each → (functions, B)."""

    def one(parameters: Any, buffers: Any, seen: Any, remaining: Tensor, actions: Any) -> Tensor:
        return torch.func.functional_call(function, (parameters, buffers), (seen, remaining, actions))  # type: ignore[no-any-return]

    return torch.func.vmap(one, randomness="different")


def _stacked(parts: Sequence[nested.Nested]) -> nested.Nested:
    return nested.map_leaves(lambda *leaves: torch.stack(leaves), *parts)


def _batches(steps: Tensor, size: int, *, seed: int) -> Iterator[Tensor]:
    """Yield batches of `size` steps without end; each step comes once before any comes again."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "order"))
    left = steps[:0]
    while True:
        while len(left) < size:
            left = torch.cat([left, steps[torch.randperm(len(steps), generator=generator)]])
        yield left[:size]
        left = left[size:]
