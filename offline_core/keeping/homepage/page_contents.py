"""What is below a root, as the pages need it: of trainings, of which there may be thousands, a row each and no curves."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Mapping
from typing import Any

from offline_core.data.datasets.catalogue import Catalogue
from offline_core.data.datasets.folder_kind import BEST, LAST
from offline_core.judging.sweeps.result import RUNS, SweepResult, SweptSetting
from offline_core.keeping.contents import Contents
from offline_core.keeping.homepage.values import Curve, number
from offline_core.keeping.stored_results import read_result
from offline_core.learning.result import ExpertResult, FineTuneResult, LearnedResult, TrainingResult
from offline_core.runtime.result import Result

KINDS: Mapping[type[LearnedResult], str] = {TrainingResult: "training", ExpertResult: "expert", FineTuneResult: "fine-tuning"}


class PageContents(Contents):
    """Datasets, policies and results by the names of their folders.

    Arguments:
        keeps_curves: the curves of all trainings are wanted, so that what is read for the rows is kept.
        more: as `Contents`.
    """

    def __init__(self, catalogue: Catalogue, *, keeps_curves: bool, **more: Any) -> None:
        super().__init__(catalogue, **more)
        self.curves: dict[str, Mapping[str, Curve]] | None = {} if keeps_curves else None
        """By the folder of the training."""

    @functools.cached_property
    def other_results(self) -> dict[str, Result]:
        """Those of stages that train nothing, by the folder of their `result.json`."""
        return {name: result for name, result in self._told.items() if isinstance(result, Result)}

    @functools.cached_property
    def settings(self) -> dict[str, tuple[SweptSetting, int]]:
        """The setting and seed of each run of a sweep, by the last names of its folder, which stay if a root is moved."""
        return {
            "/".join(run.checkpoint.split("/")[-3:-1]): (setting, run.seed)
            for sweep in self.other_results.values()
            if isinstance(sweep, SweepResult)
            for setting in sweep.settings
            for run in setting.runs
        }

    def called(self, name: str) -> str:
        """What lists call a run or a policy: one of a sweep by its setting and seed, any other by its folder."""
        run, _, end = name.rpartition("/") if posixpath.basename(name) in (BEST, LAST) else (name, "", "")
        sweep, *last = f"/{run}".rsplit("/", 2)
        if (found := self.settings.get("/".join(last))) is None:
            return name or "."
        setting, seed = found
        sweep = (posixpath.dirname(sweep) if posixpath.basename(sweep) == RUNS else sweep).strip("/")
        return ", ".join(filter(None, (f"{sweep}: {setting.short_name}" if sweep else setting.short_name, f"seed {seed}", end)))

    @functools.cached_property
    def learned(self) -> dict[str, Mapping[str, Any]]:
        """What the result of each training says, without its curves, by its folder."""
        return {name: result for name, result in self._told.items() if isinstance(result, Mapping)}

    @functools.cached_property
    def _told(self) -> dict[str, Result | Mapping[str, Any]]:
        def read(file: str) -> Result | Mapping[str, Any] | None:
            result = read_result(self.catalogue.location(file))
            if self.curves is not None and isinstance(result, LearnedResult):
                self.curves[posixpath.dirname(file)] = curves_of(result)
            return _told(self, result)

        told: list[tuple[str, Result | Mapping[str, Any]]] = self.once(self.catalogue.shown("result"), read)
        return {posixpath.dirname(name): result for name, result in told}


def _told(contents: Contents, result: Result | None) -> Result | Mapping[str, Any] | None:
    """A result, or of a training what the table says of it: thousands of curves would fill the memory."""
    if not isinstance(result, LearnedResult):
        return result
    card, curves = result.card(), curves_of(result)
    dataset = f"{contents.name_of(result.dataset.uri)} v{result.dataset.version}" if isinstance(result, TrainingResult) else ""
    return {
        "kind": KINDS[type(result)],
        "dataset": dataset,
        "status": card.word,
        "level": card.verdict,
        "told": card.sentence,
        "return": number(result.mean_return, 5),
        "episodes": int(result.metrics.get("episodes", 0)),
        "target": number(result.target_return),
        "held_out": number(curves["held-out loss"][-1][1] if curves.get("held-out loss") else None, 4),
        "updates": result.updates,
        "seconds": number(result.seconds, 4),
        "x": result.unit,
        "points": {name: len(curve) for name, curve in curves.items() if curve},
    }


def curves_of(result: LearnedResult) -> dict[str, Curve]:
    """The curves that a result keeps, by name."""
    more = {"loss": result.losses, "held-out loss": result.held_out_losses} if isinstance(result, TrainingResult) else {}
    return {"return": result.curve, **more}
