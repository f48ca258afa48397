"""One training of an expert, from its beginning or from its last state."""

from __future__ import annotations

import itertools
import json
import logging
import time
from typing import Protocol

from gymnasium.vector import VectorEnv
from pydantic import Field
from torch import Tensor

from offline_core.data.datasets.manifest import FileEntry, Operation, Parent, Statistics
from offline_core.data.store.location import Location
from offline_core.learning.algorithms.algorithm import evaluating
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.off_policy import off_policy_learner
from offline_core.learning.experts.on_policy import OnPolicyLearner
from offline_core.learning.experts.recording import TrainingRecorder
from offline_core.learning.experts.replay import ReplayRecorder
from offline_core.learning.metrics import METRICS_FILE
from offline_core.learning.online.ring import StepRing
from offline_core.learning.online.ring_files import RingFiles, RowsFile
from offline_core.learning.state import SavedState, States
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.evaluation.result import FOLLOWED
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.policies.rollouts.rollouts import rollouts
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.progress import progress
from offline_core.runtime.seeding import derive_seed

log = logging.getLogger(__name__)

BEST_NETWORKS = "best."
"""Prefix of tensors in a state: those of the best policy so far, to go back to."""
BEST_POLICY = "best policy."
"""Prefix of tensors in a state: the weights of the policy in `best`."""
RECORDED = "recorded."
"""Prefix of tensors in a state: see `ReplayRecorder.save`."""
BEST = "best"

Line = dict[str, int | float]
"""A line of the metrics."""


class ExpertLearner(Protocol):
    """Improves one policy in place: it plays, learns from that, and can be stored and restored."""

    @property
    def policy(self) -> Policy:
        """The policy that plays and learns."""

    @property
    def ring(self) -> StepRing | None:
        """The steps that batches are drawn from; None: it learns from each rollout by itself."""

    @property
    def env_steps(self) -> int:
        """Environment steps so far, without resets."""

    @property
    def updates(self) -> int:
        """Updates so far."""

    def advance(self, max_env_steps: int) -> None:
        """Play one rollout of so many environment steps at most, and learn what is due.

        Raises:
            LearningError: a loss is NaN or infinite.
        """

    def take_metrics(self) -> dict[str, float]:
        """Return losses and the like since the last call."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that the next rollout depends on, besides the ring."""

    def restore(self, state: dict[str, Tensor], *, env_steps: int, updates: int) -> None:
        """Go on from what `state` returned, with new episodes. The ring is there already."""


class ExpertState(SavedState):
    """The progress of an expert: what one that was killed goes on from, besides its tensors."""

    env_steps: int = 0
    rollouts: int = 0
    seconds: float = 0.0
    """Of all runs so far."""
    lines: list[Line] = Field([])
    snapshots: list[float] = Field([])
    """The returns whose policies are there."""
    rollbacks: int = 0
    best: dict[str, float] = Field({})
    """Metrics of the best policy so far."""
    recorded: list[FileEntry] = Field([])
    """Files of the recording."""
    recorded_statistics: Statistics = Statistics()
    rows: list[RowsFile] = Field([])
    """Files of the ring."""
    ring_rows: int = 0
    """Rows that were written to the ring since the beginning."""


def make_learner(config: ExpertConfig, env: VectorEnv, initial: PolicyManifest | None = None) -> ExpertLearner:
    """Return a learner by the algorithm of `config`.

    Arguments:
        initial: the manifest of `initial_policy`, if it was read before.

    Raises:
        CheckpointError: `initial_policy` is not a checkpoint.
        ConfigError: the algorithm cannot learn in this environment, or from this `initial_policy`.
    """
    return OnPolicyLearner(config, env, initial) if config.algorithm == "ppo" else off_policy_learner(config, env)


class RunConfig(Protocol):
    """What a run has to know: fields of `ExpertConfig` and `FineTuneConfig`."""

    @property
    def seed(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def copies(self) -> int: ...
    @property
    def evaluation_interval(self) -> int: ...
    @property
    def evaluation_episodes(self) -> int: ...
    @property
    def snapshots_at_returns(self) -> list[float]: ...


class ExpertRun:
    """Plays, learns and evaluates until the policy is good enough or the steps are used up.

    After an evaluation all is stored that a killed run needs to go on: networks, optimiser, replay, random states, counts.

    Arguments:
        identity: of the run; states of others are not used.
        target: mean return of an evaluation at which it is good enough; None: none is.
        explore: evaluations sample actions; otherwise they take the most likely ones.
        what: names it in the progress bar.
        roll_back_after: go on from the best networks after so many evaluations in a row below that of the first policy.
    """

    def __init__(
        self,
        config: RunConfig,
        learner: ExpertLearner,
        location: Location,
        *,
        environment: EnvironmentSpec,
        operation: Operation,
        parents: list[Parent],
        identity: str,
        target: float | None,
        recorder: TrainingRecorder | ReplayRecorder | None = None,
        explore: bool = False,
        what: str = "train expert",
        roll_back_after: int | None = None,
    ) -> None:
        self._config, self._learner, self._location, self._recorder = config, learner, location, recorder
        self._environment, self._explore, self._what = environment, explore, what
        self._roll_back_after = roll_back_after
        self._best_networks: dict[str, Tensor] = {}
        self._best_policy: dict[str, Tensor] = {}
        self.rollbacks = 0
        self._operation, self._parents = operation, parents
        self.states = States(location, ExpertState, run=identity)
        ring = learner.ring
        self._ring_files = None if ring is None else RingFiles(self.states.folder, ring)
        self.target = target
        self.best: dict[str, float] = {}
        """Metrics of the policy in `best`."""
        self.lines: list[Line] = []
        self.snapshots: list[float] = []
        self._rollouts = 0
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of all runs so far."""
        return time.perf_counter() - self._started

    @property
    def reached_target(self) -> bool:
        """Whether the best policy reached the target; True if there is none."""
        return self.target is None or self.best.get("episode_return_mean", float("-inf")) >= self.target

    def run(self) -> None:
        """Go on from the last state, or begin; an `initial_policy` is evaluated before it learns.

        Raises:
            LearningError: a loss became NaN or infinite.
            StorageError: the folder cannot be written.
        """
        config, learner = self._config, self._learner
        resumed = self._resume()
        with progress(config.total_steps, what=self._what, unit="step") as bar:
            bar.to(learner.env_steps)
            if self._parents and not resumed and self._is_good_enough():
                return
            while learner.env_steps + config.copies <= config.total_steps:  # all copies step together
                learner.advance(config.total_steps - learner.env_steps)
                self._rollouts += 1
                bar.to(learner.env_steps)
                if self._recorder is not None:
                    self._recorder.after(self._rollouts)
                is_last = learner.env_steps + config.copies > config.total_steps
                if self._rollouts % config.evaluation_interval == 0 or is_last:
                    if self._is_good_enough():
                        return
                    bar.note(mean_return=self.lines[-1]["episode_return_mean"])
                    if not is_last:
                        self._save()

    def _is_good_enough(self) -> bool:
        """Evaluate the policy, store it if it is the best or one to keep, and say whether it reached the target."""
        config, learner = self._config, self._learner
        seed = derive_seed(config.seed, "evaluation")
        with evaluating(learner.policy):
            played = rollouts(
                learner.policy, self._environment, episodes=config.evaluation_episodes, seed=seed, explore=self._explore
            )
        metrics = played.metrics
        score = metrics["episode_return_mean"]
        followed = {name: metrics[name] for name in FOLLOWED if name in metrics}
        self.lines.append({"env_steps": learner.env_steps, **followed, **learner.take_metrics(), "seconds": self.seconds})
        if not self.best or score > self.best["episode_return_mean"]:
            self.best = metrics
            self._best_policy = {name: tensor.detach().clone() for name, tensor in learner.policy.state_dict().items()}
            self._store(BEST, metrics)
            self._best_networks = {} if self._roll_back_after is None else learner.state()
        elif self._falls_for_long:
            self._learner.restore(self._best_networks, env_steps=learner.env_steps, updates=learner.updates)
            self.rollbacks += 1
            log.info("After %s steps the return is %.1f: back to the best networks", f"{learner.env_steps:,}", score)
        for wanted in sorted(set(config.snapshots_at_returns) - set(self.snapshots)):
            if score >= wanted:
                self._store(snapshot_name(wanted), metrics)
                self.snapshots.append(wanted)
        self._location.child(METRICS_FILE).write("".join(json.dumps(line) + "\n" for line in self.lines).encode())
        return self.target is not None and score >= self.target

    @property
    def _falls_for_long(self) -> bool:
        """Whether so many evaluations in a row, or as many again, were below that of the first policy."""
        returns = [line["episode_return_mean"] for line in self.lines]
        below = len([*itertools.takewhile(lambda value: value < returns[0], reversed(returns))])
        return self._roll_back_after is not None and below > 0 and below % self._roll_back_after == 0

    def _store(self, name: str, metrics: dict[str, float]) -> None:
        save_policy(
            self._learner.policy,
            self._location.child(name).uri,
            operation=self._operation,
            environment=self._environment,
            parents=self._parents,
            metrics=metrics,
        )

    def _save(self) -> None:
        learner, recorder = self._learner, self._recorder
        recorded = {} if recorder is None else recorder.save()
        state = ExpertState(
            updates=learner.updates,
            env_steps=learner.env_steps,
            rollouts=self._rollouts,
            seconds=self.seconds,
            lines=self.lines,
            snapshots=self.snapshots,
            recorded=[] if recorder is None else recorder.files,
            recorded_statistics=Statistics() if recorder is None else recorder.statistics,
            rows=[] if self._ring_files is None else self._ring_files.save(),
            ring_rows=0 if learner.ring is None else learner.ring.written,
            rollbacks=self.rollbacks,
            best=self.best,
        )
        more = {BEST_NETWORKS: self._best_networks, BEST_POLICY: self._best_policy, RECORDED: recorded}
        beside = {f"{prefix}{name}": tensor for prefix, tensors in more.items() for name, tensor in tensors.items()}
        self.states.save(state, learner.state() | beside)

    def _resume(self) -> bool:
        """Go on from the last state, if there is one, and put back `best` of then: a later one may have been stored since."""
        if (found := self.states.latest()) is None:
            self.states.clear()
            return False
        state, tensors = found
        if self._ring_files is not None:
            self._ring_files.load(state.rows, written=state.ring_rows, steps=state.env_steps)
        self._best_networks, recorded = _taken_out(tensors, BEST_NETWORKS), _taken_out(tensors, RECORDED)
        self._best_policy, self.best = _taken_out(tensors, BEST_POLICY), state.best
        self._learner.policy.load_state_dict(self._best_policy)
        self._store(BEST, self.best)
        self._learner.restore(tensors, env_steps=state.env_steps, updates=state.updates)
        self.rollbacks = state.rollbacks
        if self._recorder is not None:
            self._recorder.restore(state.recorded, state.recorded_statistics, recorded)
        self._rollouts, self.lines, self.snapshots = state.rollouts, list(state.lines), list(state.snapshots)
        self._started -= state.seconds
        log.info("Going on from %s environment steps: %s", f"{state.env_steps:,}", self._location.uri)
        return True


def _taken_out(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove the tensors whose names begin so, and return them without the prefix."""
    return {name.removeprefix(prefix): tensors.pop(name) for name in [*tensors] if name.startswith(prefix)}


def snapshot_name(reached: float) -> str:
    """The name of a snapshot's checkpoint, below the expert's folder."""
    return f"snapshots/{reached:g}"
