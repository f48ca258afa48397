"""The learner: an algorithm, its optimiser and its updates, alone or as one of several that share each batch."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from offline_core.data.episodes import columns, nested
from offline_core.learning.algorithms.algorithm import evaluating
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import SequencesConfig, TrainingConfig
from offline_core.learning.optimizer import learning_rate, optimizer_tensors, parameter_groups, restore_optimizer
from offline_core.learning.replay_buffer import ReplaySampler
from offline_core.learning.shards import batches
from offline_core.learning.state import below
from offline_core.learning.steps import MASK, Batch, BatchSpec, Steps, nested_as
from offline_core.learning.together import summed
from offline_core.learning.trainer_config import PlayConfig
from offline_core.learning.update import (
    MOST_GRAPHS,
    BatchOutput,
    CompiledUpdate,
    Replayed,
    Update,
    clip_gradients,
    is_compiled,
    is_own,
    sum_gradients,
)
from offline_core.runtime.adam import Adam
from offline_core.runtime.seeding import derive_seed, nth_seed
from offline_core.runtime.torch_settings import bfloat16_products, keep_freed_memory

REFRESH_SHARE = 0.1
"""Largest share of the training time for fresh value targets; they are renewed once a window in any case."""
FORWARD_SHARE = 1 / 3
"""Share of an update that is its forward pass."""


class Batched(NamedTuple):
    """One learner's share of a global batch."""

    indices: Tensor
    """Sample indices of the learner's loaded steps; it may have none."""
    steps: int
    """Steps of the whole batch."""
    drawn: Tensor | None = None
    """The indices of the whole batch, if it is of a replay buffer."""
    columns: Batch | None = None
    """What the batch holds, flat, if it was put together already."""


class _Noted(NamedTuple):
    """The metrics of a record, still on the device."""

    updates: int
    """Updates so far."""
    sums: dict[tuple[str, ...], Tensor]
    counts: Counter[tuple[str, ...]]
    extremes: dict[tuple[str, ...], Tensor]
    ages_updates: list[int]


class Learner:
    """Updates networks in this process.

    Of several learners each has steps of its own shards, and so its share of every global batch. They sum gradients and
    metrics over all of it. So the updates are the same for any number of learners, but for the last bits.

    Arguments:
        networks: updated in place.
        config: of a training from a log, or of one from play.
        total_steps: to learn from, each as often as it is. The schedule of the learning rate follows the share that is done, or
            that of max_updates.
        rank, world: of this learner; with several, the process group exists.
    """

    def __init__(
        self,
        networks: Networks,
        config: TrainingConfig | PlayConfig,
        *,
        total_steps: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        keep_freed_memory()
        self.rank, self.world = rank, world
        self._max_updates: int | None = None
        self._replacement = False
        self.sampler: ReplaySampler | None = None
        """Draws the batches of a replay buffer that a log streams through."""
        sequences, on_gpu = SequencesConfig(), False
        if isinstance(config, TrainingConfig):
            self._max_updates, self._replacement = config.optimizer.max_updates, config.optimizer.replacement
            sequences, on_gpu = config.sequences, bool(config.compute.gpus_per_learner)
            if config.data.buffer is not None:
                self.sampler = ReplaySampler(config.data.buffer, seed=config.seed, replacement=self._replacement)
        self.device = torch.device("cuda" if on_gpu else "cpu")
        self.networks, self.algorithm = networks.to(self.device), networks.algorithm
        self.spec = batch_spec(networks, sequences)
        self._cut = self.spec
        """The same, cut as in this window of this epoch."""
        self.batch_units = max(1, config.optimizer.batch_size // (self.spec.sequence_steps or 1))
        self.networks.updates = self.steps = 0
        self._targets_age_updates = -1
        self._resumed_age_updates: int | None = None
        self._refreshed_by: dict[str, Tensor] = {}
        self._seed = config.seed
        self._update_seed = derive_seed(config.seed, "update", rank)
        self._max_gradient_norm = config.optimizer.max_gradient_norm
        autocast = config.compute.bfloat16 and self.device.type != "cpu"
        self._products = bfloat16_products if config.compute.bfloat16 and not autocast else contextlib.nullcontext
        self._update: Update = Update(networks, self.nested, autocast=autocast)
        setting, updates = config.compute.compile, self._max_updates or total_steps // config.optimizer.batch_size
        if is_compiled(setting, updates, type(networks.algorithm), learners=world, on_gpu=on_gpu):
            share = len(range(rank, self.batch_units, world))
            self._update = CompiledUpdate(networks, self.nested, rows=share, fall_back=setting == "auto", autocast=autocast)
        for tensor in self.networks.state_dict().values() if world > 1 else ():
            torch.distributed.broadcast(tensor, src=0)  # other processors begin with other last bits
        trained = [parameter for parameter in networks.parameters() if parameter.requires_grad]
        self._optimizer_config = config.optimizer
        self.optimizer = Adam(parameter_groups(networks, config.optimizer), eps=networks.algorithm.adam_epsilon)
        for group in self.optimizer.param_groups if on_gpu else ():  # a tensor, which kernels that were recorded read
            group["rate"], group["lr"] = None, torch.zeros((), device=self.device)
        self._total_steps = total_steps
        self._parameters = trained
        self._steps: Steps | None = None
        self._refresh_interval = 0
        self.last_batch: Batch = {}
        """This learner's share of it, flat."""
        self._even_of, self._even = (0, 0), torch.zeros(0)
        self.gather_seconds = 0.0
        self._sums: dict[tuple[str, ...], Tensor] = {}
        """By the names of metrics, their sums since the last record; always the same tensors, for a GPU records those."""
        self._extremes: dict[tuple[str, ...], Tensor] = {}
        self._seen_extremes: set[tuple[str, ...]] = set()
        self._counts: Counter[tuple[str, ...]] = Counter()
        """Of how many updates the sums are."""
        self._ages_updates: list[int] = []
        self._noted: list[_Noted] = []
        is_graph = isinstance(self._update, CompiledUpdate) or (setting == "auto" and is_own(type(self.algorithm)))
        self._records = self.device.type == "cuda" and is_graph and world == 1 and self.sampler is None
        after = type(self.algorithm).after_update
        self._records_after_update = self.algorithm.records_after_update and after.__module__.startswith("offline_core.")
        self._replayed: dict[Hashable, Replayed] = {}
        """Updates of full batches on a GPU, by what they depend on besides tensors."""

    def load(self, steps: Steps) -> None:
        """Take the steps of the next updates."""
        if steps is not self._steps:
            self._steps = steps.to(self.device)
            steps.all_steps = int(self._of_all_shards(len(steps)))
            self.algorithm.prepare(self.networks, steps, self.spec)
            if self.sampler is not None:
                self.sampler.load(steps)
        rows = self._of_all_shards(self.algorithm.refresh_rows(self.networks, steps, self.spec))
        worth = math.ceil(rows * FORWARD_SHARE / (self.batch_steps * REFRESH_SHARE))
        self._refresh_interval = max(1, worth) if rows else 0
        self._targets_age_updates = -1
        if rows and self._resumed_age_updates is not None:  # restore the targets that the state was using
            now, age = self.networks.state_dict(), self._resumed_age_updates
            now = {name: tensor.clone() for name, tensor in now.items()}
            self.networks.load_state_dict(self._refreshed_by)
            self._refresh()
            self.networks.load_state_dict(now)
            self._targets_age_updates = age
        self._resumed_age_updates = None

    @property
    def updates(self) -> int:
        """Gradient steps so far."""
        return self.networks.updates

    @property
    def loaded_steps(self) -> Steps | None:
        """The steps of the present updates; None: there was none yet."""
        return self._steps

    def _of_all_shards(self, own: float) -> float:
        """Return the sum over learners, each of which has other steps; with a replay buffer all have the same."""
        if self.sampler is not None:
            return own
        return float(summed(torch.tensor(own, dtype=torch.float64, device=self.device)))

    def _refresh(self) -> None:
        assert self._steps is not None
        before = dict(self._steps.columns)
        self.algorithm.refresh(self.networks, self._steps, self.spec)
        for path, column in before.items():
            if column is not (renewed := self._steps.columns[path]):  # in place, for kernels that were recorded read it
                self._steps.columns[path] = column.copy_(renewed)
        self._targets_age_updates = 0
        self._refreshed_by = {name: tensor.clone() for name, tensor in self.networks.state_dict().items()}

    @property
    def batch_steps(self) -> int:
        """Steps of a full batch."""
        return self.batch_units * (self.spec.sequence_steps or 1)

    def indices(self, epoch: int = 0, window: int = 0) -> Tensor:
        """Return the sample indices of the loaded steps that the batches of this window of this epoch are drawn from."""
        assert self._steps is not None
        if (steps := self.algorithm.sequence_steps) is not None:
            self._cut = replace(self.spec, phase=derive_seed(self._seed, "phase", epoch, window) % steps)
        return self._steps.indices(self._cut)

    def batches(
        self, epoch: int = 0, window: int = 0, first: int = 0, *, size: int | None = None
    ) -> Iterator[tuple[int, Batched]]:
        """Return number and this learner's share of the batches of the loaded steps, from number `first` on.

        Arguments:
            size: sample indices of a batch; None: `batch_units`.
        """
        assert self._steps is not None
        steps, indices, size = self._steps, self.indices(epoch, window), size or self.batch_units
        if self.sampler is not None:
            numbered = self.sampler.batches(indices, size, epoch=epoch, window=window, first=first)
            return ((number, self._drawn(drawn)) for number, drawn in numbered)
        shard = steps.shard_of(indices)
        counts = summed(torch.bincount(shard, minlength=steps.shards))
        own = batches(
            indices, shard, counts, size=size, seed=self._seed, epoch=epoch, window=window, replacement=self._replacement
        )
        totals = summed(steps.counts(own, self._cut))
        batched = (Batched(batch, total) for batch, total in zip(own, totals.tolist(), strict=True))
        return itertools.islice(enumerate(batched), first, None)

    def _drawn(self, drawn: Tensor) -> Batched:
        """All learners hold the whole replay buffer, and draw the same."""
        assert self._steps is not None
        return Batched(drawn[self.rank :: self.world], self._steps.count(drawn, self._cut), drawn)

    def update(self, indices: Tensor, of: Batched | None = None) -> bool:
        """Make one gradient step on this learner's share of a global batch: these indices of the loaded steps.

        Metrics are added up, as tensors. False if the loss is NaN or infinite.

        Arguments:
            of: the batch; None: it is this learner's alone.
        """
        if of is not None and of.columns is not None:
            self.networks.counts = True
            return self.update_on(of.columns, of.steps, drawn=of.drawn)
        assert self._steps is not None
        if self._refresh_interval:
            self._targets_age_updates += 1
            if not 0 < self._targets_age_updates < self._refresh_interval:
                self._refresh()
        total = self._steps.count(indices, self._cut) if of is None else of.steps
        self.networks.counts = bool(len(indices))
        if self._records and len(indices) == self.batch_units:
            return self._replay(indices, total)
        begin = time.perf_counter()
        batch = self._steps.batch(indices if self.networks.counts else self._steps.first[:1], self._cut)
        self.gather_seconds += time.perf_counter() - begin
        return self.update_on(batch, total, drawn=indices if of is None else of.drawn)

    def update_on(self, batch: Batch, total: int, *, drawn: Tensor | None = None) -> bool:
        """Make one gradient step on this learner's share of a batch; False if the loss is NaN or infinite.

        Arguments:
            batch: flat columns, with all that the algorithm names.
            total: steps of the global batch.
            drawn: the global batch, if it is of a replay buffer.
        """
        self._begin_update()
        self.last_batch = batch
        mask = batch.get(MASK)
        importance = None if self.sampler is None or drawn is None else self.sampler.importance(drawn)
        rows = len(next(iter(batch.values())))
        weights = self._even_weights(rows, total) if mask is None else mask.flatten() / total
        if not self.networks.counts:
            weights = torch.zeros_like(weights)
        means_by = weights
        if importance is not None and self.networks.counts:
            share = importance[self.rank :: self.world]
            weights, means_by = weights * share, share / importance.sum()
        output = self._step(batch, weights, means_by)
        if self.sampler is not None and self.sampler.prioritized and drawn is not None:
            assert output.errors is not None
            self.sampler.learned(drawn, self._of_all(output.errors, len(drawn)))
        self._count(output, total)
        self.algorithm.after_update(self.networks, output.named_means)
        return self.device.type != "cpu" or math.isfinite(output.means[0].item())  # a GPU would wait: `take_metrics` tells

    def _replay(self, indices: Tensor, total: int) -> bool:
        """Make the update of a full batch by the kernels of one before, or as it is and record them."""
        assert self._steps is not None
        self._begin_update()
        key = (*self._update.attributes, self._cut)
        if key not in self._replayed:
            if len(self._replayed) == MOST_GRAPHS or self._cut.sequence_steps is not None:
                self._replayed = {}  # sequences are cut otherwise in each epoch, and each record holds memory
            what = f"An update of {type(self.algorithm).__name__}"
            self._replayed[key] = Replayed(self._recorded_step, what)
        rates = [group["lr"] for group in self.optimizer.param_groups]
        inputs = [indices]
        if self._cut.sequence_steps is not None:
            inputs.append(torch.full((), total, dtype=torch.float32, device=self.device))
        kept = [*self._update.tensors, *self._steps.columns.values(), *rates]
        output, self.last_batch = self._replayed[key](*inputs, kept=kept)
        self._count(output, total)
        if not self._records_after_update:
            self.algorithm.after_update(self.networks, output.named_means)
        return True

    def _recorded_step(self, indices: Tensor, total: Tensor | None = None) -> tuple[BatchOutput, Batch]:
        """Do all of an update that depends on tensors alone.

        Arguments:
            total: (), float32, the steps of a batch of sequences.
        """
        assert self._steps is not None
        batch = self._steps.batch(indices, self._cut)
        rows = len(indices)
        weights = torch.full((rows,), 1 / rows, device=self.device) if total is None else batch[MASK].flatten() / total
        output = self._step(batch, weights, weights)
        if self._records_after_update:
            updates, self.networks.updates = self.networks.updates, cast(int, None)  # what counts them cannot be recorded
            try:
                self.algorithm.after_update(self.networks, output.named_means)
            finally:
                self.networks.updates = updates
        return output, batch

    def _begin_update(self) -> None:
        self._seed_draws(self._update_seed)
        self.algorithm.before_update(self.networks)
        most = self._max_updates
        done = self.steps / max(1, self._total_steps) if most is None else self.updates / most
        for group in self.optimizer.param_groups:
            rate = learning_rate(self._optimizer_config, group["network"], self.updates, done)
            if self.device.type == "cpu":
                group["lr"] = rate
            elif group["rate"] != rate:
                group["rate"] = rate
                group["lr"].fill_(rate)

    def _step(self, batch: Batch, weights: Tensor, means_by: Tensor) -> BatchOutput:
        """Compute gradients, move the parameters, and add up the metrics, all on the device."""
        with self._products():
            output = self._update(batch, weights, means_by)
        names, means = output.names, output.means
        if self.world > 1:
            means = sum_gradients(self._parameters, means)
        if self._max_gradient_norm is not None:
            norm = clip_gradients(self._parameters, self._max_gradient_norm)
            names, means = (*names, "gradient_norm"), torch.cat([means, norm[None]])
        self.optimizer.step()
        if names not in self._sums:
            self._sums[names] = torch.zeros_like(means)
        self._sums[names].add_(means)
        if extreme_names := output.extreme_names:
            if extreme_names not in self._extremes:
                self._extremes[extreme_names] = torch.full_like(output.extremes, -math.inf)
            torch.maximum(self._extremes[extreme_names], output.extremes, out=self._extremes[extreme_names])
        return output._replace(names=names, means=means)

    def _count(self, output: BatchOutput, total: int) -> None:
        self.networks.updates += 1
        self.steps += total
        self._counts[output.names] += 1
        if output.extreme_names:
            self._seen_extremes.add(output.extreme_names)
        if self._refresh_interval:
            self._ages_updates.append(self._targets_age_updates)

    def _even_weights(self, rows: int, total: int) -> Tensor:
        """Return (rows,) weights of 1 / total; most batches have those of the one before."""
        if self._even_of != (rows, total):
            self._even_of, self._even = (rows, total), torch.full((rows,), 1 / total, device=self.device)
        return self._even

    def _seed_draws(self, of: int) -> None:
        """Seed Torch's global generators; `torch.manual_seed` would format a stack trace for each absent kind of device."""
        seed = nth_seed(of, self.updates)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _of_all(self, errors: Tensor, number: int) -> Tensor:
        """Return the errors of a whole batch of `number` steps, from each learner's share."""
        all_errors = errors.new_zeros(number)
        if self.networks.counts:
            all_errors[self.rank :: self.world] = errors
        return summed(all_errors)

    def wait(self) -> None:
        """Wait until the device has made all updates; a GPU makes them while this process goes on."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def note_metrics(self) -> None:
        """End a record: set the sums since the last one aside. It waits for no GPU, which `take_records` does."""
        if not self._counts:
            return
        self._noted.append(
            _Noted(
                self.updates,
                {names: self._sums[names].clone() for names in self._counts},
                Counter(self._counts),
                {names: self._extremes[names].clone() for names in sorted(self._seen_extremes)},  # as on all learners
                self._ages_updates,
            )
        )
        for names in self._counts:
            self._sums[names].zero_()
        for names in self._seen_extremes:
            self._extremes[names].fill_(-math.inf)
        self._counts.clear()
        self._seen_extremes.clear()
        self._ages_updates = []

    def take_records(self) -> list[tuple[int, dict[str, float]]]:
        """Return (updates, metrics) of each record since the last call: means over the updates since the record before."""
        self.note_metrics()
        noted, self._noted = self._noted, []
        return [(record.updates, self._metrics_of(record)) for record in noted]

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics since the last record, as means over the updates that had them; none without updates."""
        records = self.take_records()
        return records[-1][1] if records else {}

    def _metrics_of(self, noted: _Noted) -> dict[str, float]:
        sums: dict[str, float] = {}
        updates: Counter[str] = Counter()
        for names, number in noted.counts.items():
            for name, value in zip(names, noted.sums[names].tolist(), strict=True):
                sums[name] = sums.get(name, 0.0) + value
                updates[name] += number
        means = {name: value / updates[name] for name, value in sums.items()}
        if noted.ages_updates:
            means["targets_age_updates"] = sum(noted.ages_updates) / len(noted.ages_updates)
        largest: dict[str, float] = {}
        for extreme_names, extremes in noted.extremes.items():
            if self.world > 1:
                torch.distributed.all_reduce(extremes, torch.distributed.ReduceOp.MAX)
            for name, value in zip(extreme_names, extremes.tolist(), strict=True):
                largest[name] = max(largest.get(name, -math.inf), value)
        means |= {name: -value if name.endswith("_min") else value for name, value in largest.items()}
        shown: dict[str, float] = self.algorithm.log_metrics(self.networks, means)
        return shown

    @torch.no_grad()
    def loss_on(self, steps: Steps) -> float:
        """Return the mean loss on held-out steps."""
        self._seed_draws(derive_seed(self._seed, "held out"))  # a loss may draw actions
        with evaluating(self.networks):
            steps.to(self.device)
            self.algorithm.prepare(self.networks, steps, self.spec)
            if self.algorithm.refresh_rows(self.networks, steps, self.spec):
                self.algorithm.refresh(self.networks, steps, self.spec)
            total = torch.zeros((), dtype=torch.float64, device=self.device)
            count = 0
            for indices in steps.indices(self.spec).split(max(1, 8192 // (self.spec.sequence_steps or 1))):
                batch = steps.batch(indices, self.spec)
                mask = batch.get(MASK)
                loss = self.networks(self.nested(batch)).loss
                total += (loss if mask is None else loss * mask.flatten()).sum()
                count += steps.count(indices, self.spec)
        return float(total) / count

    def nested(self, batch: Batch) -> Batch:
        """Return columns nested as their spaces; of sequences, all but the observations with (S, L) as one axis."""
        if MASK not in batch and not any(nested.PATH_SEPARATOR in path for path in batch):
            return batch  # of spaces that are one array
        if MASK in batch:
            is_obs = {path: path.partition(nested.PATH_SEPARATOR)[0] == columns.OBS for path in batch}
            batch = {path: c if is_obs[path] else c.flatten(0, 1) for path, c in batch.items()}
        policy = self.networks.policy
        return nested_as(batch, (policy.observation_space, policy.action_space))

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that the next update depends on, besides the data: networks, buffers, optimiser."""
        state = {f"algorithm.{name}": tensor for name, tensor in self.networks.state_dict().items()}
        state |= optimizer_tensors(self.optimizer)
        if self._refresh_interval:
            state |= {f"refreshed.{name}": tensor for name, tensor in self._refreshed_by.items()}
            state["targets_age_updates"] = torch.tensor(self._targets_age_updates)
        if self.sampler is not None:
            state |= self.sampler.state()
        return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def restore(self, state: dict[str, Tensor], *, updates: int, steps: int, within_window: bool) -> None:
        """Restore what `state` returned.

        Arguments:
            within_window: the next batch is of the same window, so its value targets still hold.
        """
        self.networks.load_state_dict(below(state, "algorithm."))
        if self.sampler is not None:
            self.sampler.restore(state)
        if "targets_age_updates" in state and within_window:
            self._refreshed_by = below(state, "refreshed.")
            self._resumed_age_updates = int(state["targets_age_updates"])
        restore_optimizer(self.optimizer, state)
        self._replayed = {}  # with tensors of the optimiser that were replaced
        self.networks.updates, self.steps = updates, steps
        self.algorithm.before_update(self.networks)


def batch_spec(networks: Networks, sequences: SequencesConfig) -> BatchSpec:
    """Return what batches for these networks hold."""
    algorithm, network = networks.algorithm, networks.policy.network
    if algorithm.sequence_steps is not None:
        return BatchSpec(algorithm.batch_columns, sequence_steps=algorithm.sequence_steps)
    if network.recurrent is None:
        return BatchSpec(algorithm.batch_columns, frames=network.frames)
    return BatchSpec(algorithm.batch_columns, sequence_steps=sequences.steps, burn_in_steps=sequences.burn_in_steps)
