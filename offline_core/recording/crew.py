"""Recorders at work: each takes the next assignment when it is done with one, and what a lost one had goes to another."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayActorError

from offline_core.errors import RecorderError
from offline_core.progress import progress
from offline_core.ray_session import fetch
from offline_core.recording.player import Assignment
from offline_core.recording.recorder import Recorder, Written
from offline_core.recording.result import RecorderShare

POLL_SECONDS = 0.5
PROGRESS_SECONDS = 0.1


@dataclass(slots=True, eq=False)
class _Member:
    """One recorder, from its start to its loss or the end."""

    actor: Any
    place: int
    """Its number among those who work at a time; whoever replaces it has the same."""
    node: str = ""
    written: list[Written] = field(default_factory=list)


class Crew:
    """Plays assignments with `count` recorders at a time, on all nodes that Ray has.

    A recorder that is lost, alone or with its node, is replaced; until there is room for its successor the others go on.
    What an assignment gives depends neither on who plays it nor on how often it was begun.

    Arguments:
        arguments: of `Recorder`.
        cpus: that Ray reserves for each.
        max_losses: how often the same assignment may lose its recorder.
    """

    def __init__(self, arguments: tuple[Any, ...], *, count: int, cpus: float, max_losses: int) -> None:
        actor = ray.remote(num_cpus=cpus, scheduling_strategy="SPREAD", concurrency_groups={"progress": 1})(Recorder)
        self._new: Callable[[], Any] = partial(actor.remote, *arguments)
        self._cpus = cpus
        self._max_losses = max_losses
        self._losses: Counter[Assignment | int] = Counter()
        """By what was lost: an assignment, or the place of a recorder that never began."""
        self._members: list[_Member] = []
        """All that there ever were."""
        self._idle: list[_Member] = []
        self._busy: dict[Any, tuple[_Member, Assignment | None]] = {}
        """With an assignment, or with starting; by the reference that is there when it is done."""
        for place in range(count):
            self._start(place)

    def play(self, work: Sequence[Assignment]) -> dict[Assignment, Written]:
        """Plays all of it.

        Raises:
            RecorderError: the same work lost its recorder too often, or no node is left that has room for one.
            OfflineError: what a recorder raised.
        """
        waiting, results = deque(work), dict[Assignment, Written]()
        with progress(sum(assignment.episodes for assignment in work), what="record", unit="episode") as bar:
            while len(results) < len(work):
                while waiting and self._idle:
                    self._assign(self._idle.pop(), waiting.popleft())
                done, _ = ray.wait(list(self._busy), timeout=POLL_SECONDS)
                for reference in done:
                    member, assignment = self._busy.pop(reference)
                    try:
                        outcome = fetch(reference)
                    except (RayActorError, ObjectLostError) as error:
                        if assignment is not None:
                            waiting.appendleft(assignment)
                        self._replace(member, assignment, error)
                        continue
                    self._idle.append(member)
                    if assignment is None:
                        member.node = outcome
                    else:
                        results[assignment] = outcome
                        member.written.append(outcome)
                bar.to(sum(done.statistics.episodes for done in results.values()) + self._played())
                self._check_room(len(work) - len(results))
        return results

    def close(self) -> None:
        """Ends all recorders."""
        for member in self._members:
            ray.kill(member.actor)

    @property
    def shares(self) -> list[RecorderShare]:
        """What each did, of those who did anything."""
        return [
            RecorderShare(
                node=member.node,
                episodes=sum(written.statistics.episodes for written in member.written),
                steps=sum(written.statistics.steps for written in member.written),
                seconds=sum(written.seconds for written in member.written),
            )
            for member in self._members
            if member.written
        ]

    def _start(self, place: int) -> None:
        member = _Member(self._new(), place)
        self._members.append(member)
        self._busy[member.actor.node.remote()] = (member, None)

    def _assign(self, member: _Member, assignment: Assignment) -> None:
        self._busy[member.actor.record.remote(assignment)] = (member, assignment)

    def _replace(self, member: _Member, assignment: Assignment | None, error: Exception) -> None:
        ray.kill(member.actor)  # it may only be out of reach
        lost = member.place if assignment is None else assignment
        self._losses[lost] += 1
        if self._losses[lost] > self._max_losses:
            when = "while it started" if assignment is None else f"at {assignment}"
            raise RecorderError(
                f"A recorder died {self._losses[lost]} times {when}; nothing was committed. Too little memory is the usual "
                f"reason: lower envs_per_recorder or num_recorders. Ray says: {error}"
            ) from error
        if not self._idle:
            self._start(member.place)

    def _played(self) -> int:
        """Episodes of the assignments that are being played."""
        asked = [member.actor.episodes.remote() for member, assignment in self._busy.values() if assignment is not None]
        if not asked:
            return 0
        answers, _ = ray.wait(asked, num_returns=len(asked), timeout=PROGRESS_SECONDS)
        played = 0
        for answer in answers:
            with contextlib.suppress(RayActorError):  # which is seen by who waits for what it records
                played += ray.get(answer)
        return played

    def _check_room(self, missing: int) -> None:
        is_anybody_there = self._idle or any(assignment is not None for _, assignment in self._busy.values())
        if missing and not is_anybody_there and not room_for_recorders(self._cpus):
            raise RecorderError(
                f"No node that Ray has left has {self._cpus:g} CPUs for a recorder, and {missing} assignments are not played; "
                "nothing was committed. Run it again when there is a node, or with fewer cpus_per_recorder."
            )


def room_for_recorders(cpus: float) -> int:
    """How many actors of so many CPUs fit on the nodes that Ray has, if nothing else were on them."""
    return sum(int(node["Resources"].get("CPU", 0.0) // cpus) for node in ray.nodes() if node["Alive"])
