"""How far a piece of work has come: a bar on a terminal, and told to whoever observes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType

from tqdm import tqdm

SECONDS_BETWEEN_REPORTS = 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: `n` of `total` units after `seconds`; `began` of them were done before."""

    what: str
    """A verb: "record"."""
    unit: str
    """In the singular: "episode"."""
    n: int
    total: int | None
    """None if nobody knows."""
    seconds: float
    began: int = 0
    notes: Mapping[str, float] | None = None
    """Numbers beside it, by name."""
    ended: bool = False
    """No more reports come, whether it came to `total` or not."""

    @property
    def rate(self) -> float:
        """Units a second, 0 before anything is done."""
        return (self.n - self.began) / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        """In words: "record: 120 of 500 episodes, 38 a second, about 10 s to go"."""
        parts = [f"{self.n:,}{'' if self.total is None else f' of {self.total:,}'} {self.unit}s"]
        if self.rate > 0:
            parts.append(f"{self.rate:,.0f} a second" if self.rate >= 10 else f"{self.rate:.2g} a second")
            if self.total is not None and not self.ended and self.n < self.total:
                parts.append(f"about {_duration((self.total - self.n) / self.rate)} to go")
        parts += [f"{name.replace('_', ' ')} {value:.4g}" for name, value in (self.notes or {}).items()]
        if self.ended:
            parts.append(f"{'done' if self.n == self.total else 'ended'} after {_duration(self.seconds)}")
        return f"{self.what}: {', '.join(parts)}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


Observer = Callable[[Progress], None]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Has `observer` told of all work begun inside, every `SECONDS_BETWEEN_REPORTS` at most, and once at the end of each.

    It is called where the work is done, so it must be quick and raise nothing. Work in another process, and in a thread that
    was not given this context, is not seen.
    """
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


class Bar:
    """What `progress` gives: counts, and shows it. To be used by one thread at a time."""

    def __init__(self, total: int | None, *, what: str, unit: str, began: int = 0) -> None:
        self.n = began
        self._total, self._what, self._unit, self._began = total, what, unit, began
        self._notes: dict[str, float] = {}
        self._observers = _observers.get()  # now: the bar may be moved by a thread that knows of none
        self._start = self._reported = time.monotonic()
        self._bar = tqdm(total=total, initial=began, desc=what, unit=unit, unit_scale=True, disable=None)

    def update(self, more: int) -> None:
        """`more` units are done."""
        self.to(self.n + more)

    def to(self, n: int) -> None:
        """`n` units are done; fewer than before if some have to be done again."""
        self._bar.update(n - self.n)
        self.n = n
        if self._observers and time.monotonic() - self._reported >= SECONDS_BETWEEN_REPORTS:
            self._report(ended=False)

    def note(self, **numbers: float) -> None:
        """Shows numbers beside the bar, until others of the same names come."""
        self._notes |= numbers
        self._bar.set_postfix(self._notes)

    def close(self) -> None:
        """The end, reported once however often it is called."""
        self._bar.close()
        self._report(ended=True)
        self._observers = ()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _report(self, *, ended: bool) -> None:
        self._reported = time.monotonic()
        seconds = self._reported - self._start
        for observer in self._observers:
            observer(Progress(self._what, self._unit, self.n, self._total, seconds, self._began, dict(self._notes), ended))


def progress(total: int | None, *, what: str, unit: str, began: int = 0) -> Bar:
    """A bar on a terminal and nothing elsewhere; observers of this context are told in both cases.

    Arguments:
        total: None if nobody knows.
        what: a verb, "record".
        unit: in the singular, "episode".
        began: units done before, by a run that this one goes on from.
    """
    return Bar(total, what=what, unit=unit, began=began)
