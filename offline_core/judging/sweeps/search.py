"""Let Optuna choose what a sweep tries next, from what came of the settings before (Akiba et al. 2019, arXiv 1907.10902)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from offline_core.judging.sweeps.config import Distribution, SweepConfig
from offline_core.judging.sweeps.settings import Parameters, Setting, draws_of, grid_of, is_whole, setting_of
from offline_core.runtime.extras import require_extra
from offline_core.runtime.seeding import derive_seed

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial


class Search:
    """Suggests settings by tree-structured Parzen estimators (Bergstra et al. 2011), a study each combination of the grid.

    What it suggests depends on the parameters and the scores so far alone. So a sweep that was killed gets the same
    suggestions again, and finds the runs that are done: nothing is stored besides them.

    Raises:
        ConfigError: Optuna is not installed.
    """

    def __init__(self, config: SweepConfig) -> None:
        with require_extra("optuna"):
            import optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._config = config
        self._distributions = {path: _distribution(path, choice) for path, choice in config.random.items()}
        self._studies = [(values, draws_of(config)) for values in grid_of(config)]
        """For each combination of the grid: its values, and what was tried with them."""

    def next(self, tried: Sequence[Setting], scores: Mapping[str, float], *, minimize: bool) -> list[Setting]:
        """Return the settings to try next, one a study at most; none if there were enough samples.

        Arguments:
            tried: all settings so far.
            scores: by digest, of those that could be trained.

        Raises:
            ConfigError: Suggested values cannot be together.
        """
        settings: dict[str, Setting] = {}
        tried_digests = {setting.digest for setting in tried}
        while not settings and len(self._studies[0][1]) < self._config.samples:
            for values, draws in self._studies:
                draws.append(self._suggested(values, draws, scores, minimize=minimize))
                setting = setting_of(self._config, values | draws[-1])
                if setting.digest not in tried_digests:
                    settings[setting.digest] = setting
        return [*settings.values()]

    def _suggested(
        self, values: Parameters, draws: Sequence[Parameters], scores: Mapping[str, float], *, minimize: bool
    ) -> Parameters:
        import optuna

        name = json.dumps(to_jsonable_python(values, fallback=str))
        sampler = optuna.samplers.TPESampler(
            seed=derive_seed(self._config.seed, "search", name, len(draws)), n_startup_trials=0
        )
        study = optuna.create_study(direction="minimize" if minimize else "maximize", sampler=sampler)
        for draw in draws:
            score = scores.get(setting_of(self._config, values | draw).digest, math.nan)
            if math.isfinite(score):
                study.add_trial(self._trial(draw, score))
        asked = study.ask(self._distributions).params
        return {
            path: choice[asked[path]] if isinstance(choice, list) else asked[path]
            for path, choice in self._config.random.items()
        }

    def _trial(self, draw: Parameters, score: float) -> FrozenTrial:
        import optuna

        random = self._config.random.items()
        numbers = {path: _index(choice, draw[path]) if isinstance(choice, list) else draw[path] for path, choice in random}
        return optuna.trial.create_trial(params=numbers, distributions=self._distributions, value=score)


def _index(choices: list[Any], value: Any) -> int:
    return next(number for number, choice in enumerate(choices) if choice is value)


def _distribution(path: str, choice: Distribution | list[Any]) -> BaseDistribution:
    """The distribution of a number, or of the index of a choice, as a choice may be anything."""
    import optuna

    if isinstance(choice, list):
        return optuna.distributions.CategoricalDistribution(range(len(choice)))
    if is_whole(path):
        return optuna.distributions.IntDistribution(math.ceil(choice.low), math.floor(choice.high), log=choice.log)
    return optuna.distributions.FloatDistribution(choice.low, choice.high, log=choice.log)
