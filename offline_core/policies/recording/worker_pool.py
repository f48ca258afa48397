"""A pool of recorders: an idle worker takes the next task, and the task of a lost worker goes to another."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
import torch
from ray.exceptions import ObjectLostError, RayActorError

from offline_core.errors import RecorderError
from offline_core.policies.recording.player import EpisodesToPlay, Recorder, Written
from offline_core.policies.recording.result import RecorderShare
from offline_core.runtime.progress import progress
from offline_core.runtime.ray_session import fetch

POLL_SECONDS = 0.5
PROGRESS_SECONDS = 0.1


class RecorderActor(Recorder):
    """A recorder in a process of its own."""

    def __init__(self, *arguments: Any) -> None:
        torch.set_num_threads(1)
        super().__init__(*arguments)

    @ray.method(concurrency_group="progress")  # type: ignore[untyped-decorator]
    def episodes(self) -> int:
        return super().episodes()

    def node(self) -> str:
        """Address of its machine."""
        return str(ray.util.get_node_ip_address())


@dataclass(slots=True, eq=False)
class _Worker:
    """One recorder, from its start to its loss or the end."""

    actor: Any
    number: int
    """Among the workers at a time; a replacement takes the number of the lost one."""
    node: str = ""
    written: list[Written] = field(default_factory=list)


class WorkerPool:
    """Plays tasks with `count` recorders at a time, on all nodes of the Ray cluster.

    A recorder that is lost, alone or with its node, is replaced; until there is room for a new one the others go on. The
    episodes of a task depend neither on the worker nor on how often the task was started.

    Arguments:
        arguments: of `Recorder`.
        cpus: that Ray reserves for each.
        max_losses: how often the same task may lose its recorder.
    """

    def __init__(self, arguments: tuple[Any, ...], *, count: int, cpus: float, max_losses: int) -> None:
        actor = ray.remote(num_cpus=cpus, scheduling_strategy="SPREAD", concurrency_groups={"progress": 1})(RecorderActor)
        self._new: Callable[[], Any] = partial(actor.remote, *arguments)
        self._cpus = cpus
        self._max_losses = max_losses
        self._losses: Counter[EpisodesToPlay | int] = Counter()
        """How often workers were lost, by task, or by the number of a worker that never started."""
        self._workers: list[_Worker] = []
        """All workers, including lost ones."""
        self._idle: list[_Worker] = []
        self._busy: dict[Any, tuple[_Worker, EpisodesToPlay | None]] = {}
        """The worker and its task, None while it starts; by the reference that Ray resolves at the end."""
        for number in range(count):
            self._start(number)

    def play(self, tasks: Sequence[EpisodesToPlay]) -> dict[EpisodesToPlay, Written]:
        """Play all tasks.

        Raises:
            RecorderError: the same task lost its recorder too often, or no node has room for a recorder.
            OfflineError: a recorder raised it.
        """
        waiting, results = deque(tasks), dict[EpisodesToPlay, Written]()
        with progress(sum(task.episodes for task in tasks), what="record", unit="episode") as bar:
            while len(results) < len(tasks):
                while waiting and self._idle:
                    worker, task = self._idle.pop(), waiting.popleft()
                    self._busy[worker.actor.record.remote(task)] = (worker, task)
                done, _ = ray.wait(list(self._busy), timeout=POLL_SECONDS)
                for reference in done:
                    worker, finished = self._busy.pop(reference)
                    try:
                        outcome = fetch(reference)
                    except (RayActorError, ObjectLostError) as error:
                        if finished is not None:
                            waiting.appendleft(finished)
                        self._replace(worker, finished, error)
                        continue
                    self._idle.append(worker)
                    if finished is None:
                        worker.node = outcome
                    else:
                        results[finished] = outcome
                        worker.written.append(outcome)
                bar.to(sum(written.statistics.episodes for written in results.values()) + self._played())
                self._check_room(len(tasks) - len(results))
        return results

    def close(self) -> None:
        """End all recorders."""
        for worker in self._workers:
            ray.kill(worker.actor)

    @property
    def shares(self) -> list[RecorderShare]:
        """What each recorder wrote, without those that wrote nothing."""
        return [RecorderShare.of(worker.node, worker.written) for worker in self._workers if worker.written]

    def _start(self, number: int) -> None:
        worker = _Worker(self._new(), number)
        self._workers.append(worker)
        self._busy[worker.actor.node.remote()] = (worker, None)

    def _replace(self, worker: _Worker, task: EpisodesToPlay | None, error: Exception) -> None:
        ray.kill(worker.actor)  # it may only be out of reach
        lost = worker.number if task is None else task
        self._losses[lost] += 1
        if self._losses[lost] > self._max_losses:
            when = "while it started" if task is None else f"at {task}"
            raise RecorderError(
                f"A recorder died {self._losses[lost]} times {when}; nothing was committed. Too little memory is the usual "
                f"reason: lower envs_per_recorder or num_recorders. Ray says: {error}"
            ) from error
        if not self._idle:
            self._start(worker.number)

    def _played(self) -> int:
        """Episodes played so far in unfinished tasks."""
        asked = [worker.actor.episodes.remote() for worker, task in self._busy.values() if task is not None]
        if not asked:
            return 0
        answers, _ = ray.wait(asked, num_returns=len(asked), timeout=PROGRESS_SECONDS)
        played = 0
        for answer in answers:
            with contextlib.suppress(RayActorError):  # `play` learns of the loss from the task's own reference
                played += ray.get(answer)
        return played

    def _check_room(self, missing: int) -> None:
        has_workers = self._idle or any(task is not None for _, task in self._busy.values())
        if missing and not has_workers and not room_for_recorders(self._cpus):
            raise RecorderError(
                f"No node of the Ray cluster has {self._cpus:g} CPUs for a recorder, and {missing} tasks are not played; "
                "nothing was committed. Add a node and run it again, or lower cpus_per_recorder."
            )


def room_for_recorders(cpus: float) -> int:
    """How many actors with so many CPUs fit on the nodes of the Ray cluster, if nothing else ran there."""
    return sum(int(node["Resources"].get("CPU", 0.0) // cpus) for node in ray.nodes() if node["Alive"])
