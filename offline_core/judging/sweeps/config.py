"""Parameters of a sweep."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from offline_core.data.store.allowed_roots import IS_URI
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.learning.config import TrainingConfig
from offline_core.runtime.config import Config, closed, values_of_text

Score = Literal["auto", "last_return", "best_return", "held_out_loss", "estimate"]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
MAX_RUNS = 100_000


class Distribution(Config):
    """Numbers to draw: each as likely as any other, or each order of magnitude."""

    low: float = Field(allow_inf_nan=False, description="The smallest number.")
    high: float = Field(allow_inf_nan=False, description="The largest number.")
    log: bool = Field(False, description="Draw the logarithm: from 1 to 100, half of the numbers are below 10.")

    @model_validator(mode="after")
    def _is_a_range(self) -> Distribution:
        if self.low > self.high:
            raise ValueError(f"low is {self.low:g}, above high, which is {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"low is {self.low:g}, which has no logarithm: set it above 0, or log to false")
        return self


def _dotted(values: Any) -> Any:
    """Nested groups as dotted paths: {"iql": {"beta": …}} → {"iql.beta": …}."""
    if not isinstance(values, dict):
        return values
    pairs: list[tuple[str, Any]] = []
    for name, value in values.items():
        is_group = isinstance(value, dict) and not {"low", "high"} & value.keys()
        pairs += [(f"{name}.{path}", inner) for path, inner in _dotted(value).items()] if is_group else [(name, value)]
    if len(twice := dict(pairs)) < len(pairs):
        raise ValueError(f"a path is there twice, with a dot and as a group, among {', '.join(twice)}")
    return dict(pairs)


Choices = Annotated[list[Any], Field(min_length=1)]


class SweepConfig(Config):
    """Which settings of a training are tried, with which seeds, and how they are compared."""

    training: TrainingConfig = Field(
        TrainingConfig(),
        description="The training; what the settings do not name stays as it is here.",
        json_schema_extra=closed,
    )
    grid: Annotated[dict[str, Choices], BeforeValidator(_dotted)] = Field(
        {},
        description="Values by path of a training's parameter, each combination of which is a setting, as JSON: "
        '{"algorithm": ["bc", "iql"], "iql.beta": [1, 3, 10]}.',
    )
    random: Annotated[dict[str, Distribution | Choices], BeforeValidator(_dotted)] = Field(
        {},
        description="Values to draw by path, from a distribution or a list, as JSON: "
        '{"optimizer.learning_rate": {"low": 1e-5, "high": 1e-2, "log": true}}. Each combination of the grid gets the same '
        "ones.",
    )
    search: Literal["random", "optuna"] = Field(
        "random",
        description="How values of random are chosen. random: drawn. optuna: the first ten samples are, each later one by "
        "Optuna's TPE from the scores before it, so one setting for each combination of the grid at a time.",
    )
    samples: int = Field(10, ge=1, le=MAX_RUNS, description="How often to draw from random; more keep those of fewer.")
    seeds: Annotated[int, Field(ge=1, le=MAX_RUNS)] | list[Seed] = Field(
        5, description="Runs of each setting: so many, with the seeds from seed on, or the seeds themselves."
    )
    seed: Seed = Field(0, description="The first seed; also of what is drawn, and of the resamples.")
    score: Score = Field(
        "auto",
        description="What a run is compared by. last_return: of the last policy as the training played it. best_return: of the "
        "best one, which was chosen by the same episodes. held_out_loss: the lowest. estimate: of the return, by which a "
        "decision ranks candidates. auto: last_return if the policy is played, else held_out_loss if losses compare, else "
        "estimate.",
    )
    estimate: EstimateConfig = Field(
        EstimateConfig(),
        description="Discount, horizon and Q function of an estimate. estimate.behaviour is a model of what acted; "
        "None: the recorded action_logp, or a clone that is fitted to the data.",
        json_schema_extra=closed,
    )
    estimate_on: Annotated[str | None, IS_URI] = Field(
        None, description="Dataset to estimate from. None: training.evaluation.held_out."
    )
    min_overlap: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Share of a policy's actions that the behaviour would plausibly take, at least; with less an estimate "
        "means little: the run has a reason, and is ranked all the same.",
    )
    parallel: Literal["auto"] | Annotated[int, Field(ge=1, le=10_000)] = Field(
        "auto",
        description="Runs at once, as tasks of Ray. 1: this process trains one after the other. auto: as many as Ray has CPUs "
        "for; 1 if each run has learners or prelearners of its own.",
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Share of the bootstrap's resamples within an interval.")
    resamples: int = Field(2_000, ge=10, le=1_000_000, description="Of the bootstrap, each of as many runs as there are.")

    @model_validator(mode="before")
    @classmethod
    def _with_preset_in_grid(cls, values: Any) -> Any:
        """A training's preset is that of each setting's algorithm."""
        training = values.get("training") if isinstance(values, dict) else None
        training = values_of_text(training) if isinstance(training, str) else training
        if not isinstance(training, dict) or not training.get("preset"):
            return values
        rest = {name: value for name, value in training.items() if name != "preset"}
        return values | {"training": rest, "grid": {"preset": [training["preset"]]} | _dotted(values.get("grid") or {})}

    @model_validator(mode="after")
    def _names_each_parameter_once(self) -> SweepConfig:
        paths = [*self.grid, *self.random]
        for path in paths:
            if path in self.grid and path in self.random:
                raise ValueError(f"{path} is in grid and in random: leave it in one of them")
            if whole := next((other for other in paths if path.startswith(f"{other}.")), None):
                raise ValueError(f"{path} is part of {whole}, which is there too: leave one of them")
            if path == "seed":
                raise ValueError("seed is a parameter of the sweep: set seeds")
        if self.search == "optuna" and not self.random:
            raise ValueError("optuna searches among the values of random, which is empty: move what it is to choose there")
        if self.training.seed:
            raise ValueError("training.seed has no effect: set seed, or seeds")
        if isinstance(self.seeds, list) and len({*self.seeds}) < len(self.seeds):
            raise ValueError("seeds has a seed twice")
        if isinstance(self.seeds, list) and not self.seeds:
            raise ValueError("seeds is empty")
        return self

    @model_validator(mode="after")
    def _estimates_as_a_decision_does(self) -> SweepConfig:
        if self.estimate.seed:
            raise ValueError("estimate.seed has no effect: set seed")
        for name in ("methods", "gate_method", "require_return", "confidence", "resamples"):
            if getattr(self.estimate, name) != EstimateConfig.model_fields[name].default:
                raise ValueError(
                    f"estimate.{name} has no effect: runs are ranked by wdr and fqe together, as decide ranks candidates, and "
                    "not by an interval. Leave it out"
                )
        return self

    @property
    def unused(self) -> set[str]:
        varied = {f"training.{name}" for paths in (self.grid, self.random) for name in map(str, paths.get("algorithm", ()))}
        return (super().unused | ({f"training.{self.training.algorithm}"} if varied else set())) - varied

    @property
    def judged_on(self) -> str | None:
        """URI of the data that policies are estimated from, or held against."""
        return self.estimate_on or self.training.evaluation.held_out

    @property
    def all_seeds(self) -> list[int]:
        """The seed of each run of a setting."""
        return [*range(self.seed, self.seed + self.seeds)] if isinstance(self.seeds, int) else self.seeds
