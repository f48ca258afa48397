"""Progress of work: a bar on a terminal or in a notebook, a line that stays where the bar was, and reports to observers."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType

from tqdm import TqdmWarning

from offline_core.runtime.units import duration_text

with warnings.catch_warnings():  # as tqdm.auto does, which also loads asyncio; and without ipywidgets bars are text
    warnings.simplefilter("ignore", category=TqdmWarning)
    from tqdm.autonotebook import tqdm

log = logging.getLogger(__name__)

SECONDS_BETWEEN_REPORTS = 2.0
SECONDS_WORTH_A_LINE = 1.0
"""Work that took less leaves no line."""
LONG_SECONDS = 10.0
"""What takes longer is told where no bar is seen."""
LEAST_SHARE = 0.02
"""Share of the work before which no remaining time is given: the first pieces are slow ones."""
LATER = 1.25
"""How much older the work is each time it is told: 5 times in 30 s, 27 in an hour and 41 in a day."""


@dataclass(frozen=True, slots=True)
class Progress:
    """`n` of `total` units are done after `seconds`; `began` of them by an earlier run."""

    what: str
    """A verb, after the part that it is of if there is one: "record", "clone of what acted, train"."""
    unit: str
    """Name of the unit in the singular: "episode"."""
    n: int
    total: int | None
    """None if unknown."""
    seconds: float
    began: int = 0
    notes: Mapping[str, float] | None = None
    """Further numbers, by name."""
    ended: bool = False
    """This is the last report. `total` is the most that the work could take, so that less may be all of it."""
    failed: bool = False
    """It is the last one because of an error."""

    @property
    def rate(self) -> float:
        """Units a second; 0 at the start."""
        return (self.n - self.began) / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        """As in "record: 120 of 500 episodes, 38 a second, about 10 s to go", and "record: 500 episodes in 13 s" at the end."""
        parts = [f"{self.n:,}{'' if self.total is None or self._is_done else f' of {self.total:,}'} {self._units}"]
        if self.ended:
            end = "in" if self._is_done else "when it stopped, after"
            parts = [f"{parts[0]} {end} {duration_text(self.seconds)}"]
        if self.rate > 0:
            parts.append(f"{self.rate:,.0f} a second" if self.rate >= 10 else f"{self.rate:.2g} a second")
            if self.total is not None and not self.ended and LEAST_SHARE * self.total <= self.n < self.total:
                parts.append(f"about {duration_text((self.total - self.n) / self.rate)} to go")
        parts += [f"{name.replace('_', ' ')} {value:.4g}" for name, value in (self.notes or {}).items()]
        return f"{self.what}: {', '.join(parts)}"

    @property
    def percent(self) -> float:
        """How much is done; all of it once it ended without an error."""
        if self._is_done:
            return 100.0
        return 100.0 * min(1.0, self.n / self.total) if self.total else 0.0

    @property
    def _is_done(self) -> bool:
        return self.ended and not self.failed

    @property
    def _units(self) -> str:
        return self.unit if self.n == 1 and (self.total is None or self._is_done) else f"{self.unit}s"


Observer = Callable[[Progress], None]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())
_part: ContextVar[str] = ContextVar("part", default="")


@contextlib.contextmanager
def part_of_work(name: str) -> Iterator[None]:
    """Tell all work begun inside as that of a part: "clone of what acted, train: 32 of 20,000 updates"."""
    token = _part.set(f"{_part.get()}{name}, ")
    try:
        yield
    finally:
        _part.reset(token)


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Report all work begun inside to `observer`, every `SECONDS_BETWEEN_REPORTS` at most, and once at its end.

    The working thread calls it, so it must be quick and raise nothing. Other processes, and threads without this context, do
    not report.
    """
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def milestones() -> Callable[[Progress], bool]:
    """Return what says which reports of work are worth a line or a request: few of what takes long, none of what does not."""
    due_seconds: dict[str, float] = {}

    def is_milestone(progress: Progress) -> bool:
        is_told = progress.what in due_seconds
        if not (progress.ended and is_told) and progress.seconds < due_seconds.get(progress.what, LONG_SECONDS):
            return False
        due_seconds[progress.what] = LATER * progress.seconds
        if progress.ended:
            del due_seconds[progress.what]
        return True

    return is_milestone


@contextlib.contextmanager
def progress_logged() -> Iterator[None]:
    """Log now and then how far long work inside the block is, for those who see no bar."""
    is_milestone = milestones()

    def tell(progress: Progress) -> None:
        if is_milestone(progress):
            log.info("%s", progress)

    with observe(tell):
        yield


class Bar:
    """A bar on a terminal or in a notebook, and reports to the observers of this context; for one thread at a time.

    Where the bar was, a line stays that says what the work came to.

    Arguments:
        total: None if unknown.
        what: a verb, "record".
        unit: in the singular, "episode".
        began: units done by the run that this one resumes.
    """

    def __init__(self, total: int | None, *, what: str, unit: str, began: int = 0) -> None:
        self.n = began
        self._total, self._what, self._unit, self._began = total, f"{_part.get()}{what}", unit, began
        self._notes: dict[str, float] = {}
        self._ended = False
        self._observers = _observers.get()  # now: the thread that moves the bar may lack this context
        self._start = self._reported = time.monotonic()
        self._bar = tqdm(total=total, initial=began, desc=self._what, unit=unit, unit_scale=True, disable=None, leave=False)

    def update(self, more: int) -> None:
        """`more` units are done."""
        self.to(self.n + more)

    def to(self, n: int) -> None:
        """`n` units are done; fewer than before if some are repeated."""
        self._bar.update(n - self.n)
        self.n = n
        if self._observers and not self._ended and time.monotonic() - self._reported >= SECONDS_BETWEEN_REPORTS:
            self._report(ended=False)

    def note(self, **numbers: float) -> None:
        """Show numbers next to the bar, until they are replaced."""
        self._notes |= numbers
        self._bar.set_postfix(self._notes)

    def close(self, *, failed: bool = False) -> None:
        """End the work, for an error or because it is done; further calls do nothing."""
        if self._ended:
            return
        self._ended, is_shown = True, not self._bar.disable
        self._bar.close()
        last = self._report(ended=True, failed=failed)
        if is_shown and last.seconds >= SECONDS_WORTH_A_LINE:
            self._bar.write(str(last), file=self._bar.fp)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(failed=error is not None)

    def _report(self, *, ended: bool, failed: bool = False) -> Progress:
        self._reported = time.monotonic()
        seconds = self._reported - self._start
        notes = dict(self._notes)
        report = Progress(self._what, self._unit, self.n, self._total, seconds, self._began, notes, ended, failed)
        for observer in self._observers:
            observer(report)
        return report


progress = Bar
