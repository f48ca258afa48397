"""Estimates what the policies of a sweep come to, as the selecting side of a decision ranks its candidates."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import Parent
from offline_core.data.store.location import Location
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.result import SELECT
from offline_core.judging.estimation.contenders import MOST, Contender, contenders_of
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.policies.lineage import lineage
from offline_core.policies.manifest import find_policy
from offline_core.runtime.config import without_defaults

if TYPE_CHECKING:
    from offline_core.judging.decisions.evidence import Side
    from offline_core.judging.decisions.judging import Ranked
    from offline_core.judging.estimation.observations import TargetPolicy

LEAST_RESAMPLES = 10
"""Of each difference's interval, which nothing here reads: scores go by values and standard errors."""


@dataclass
class LogEstimates:
    """What a log says of policies: the same numbers, and the same doubts, as where `decide` ranks them.

    The log is read once for all policies that come together, `MOST` at a time. What it says of one does not depend on the
    others, so it is kept; only the scores are of all that are asked for.
    """

    config: DecisionConfig
    log: Dataset
    folder: Location
    """For a model of what acted, if nothing says how probable the recorded actions were."""
    model: Contender | None
    """The policy that acted, if it was named."""
    _held: dict[str, Ranked] = field(default_factory=dict)
    """By fingerprint of the policy."""

    @classmethod
    def of(cls, config: SweepConfig, log: Dataset, folder: Location) -> LogEstimates:
        """
        Raises:
            CheckpointError: There is no policy where `estimate.behaviour` says.
        """
        named = config.estimate.behaviour
        model = None if named is None else contenders_of([find_policy(named)[0]], log)[0]
        changed = {"behaviour": None if model is None else model.uri, "resamples": LEAST_RESAMPLES}
        values = {
            "estimate": config.estimate.model_copy(update=changed),
            "min_overlap": config.min_overlap,
            "seed": config.seed,
            "examine_updates": 0,
        }
        return cls(DecisionConfig().model_copy(update=values), log, folder, model)

    @property
    def identity(self) -> dict[str, object]:
        """What changes the scores, but for the policies and `parents`."""
        estimate = without_defaults(self.config.estimate, exclude={"behaviour", "resamples"})
        told: dict[str, object] = {"estimate": estimate, "min_overlap": self.config.min_overlap}
        return told | {"behaviour": None if self.model is None else self.model.fingerprint}

    @property
    def parents(self) -> list[Parent]:
        """What the scores are made from, but for the policies."""
        return [self.log.parent_entry, *([] if self.model is None else [self.model.parent])]

    def check(self, policies: Mapping[str, TargetPolicy]) -> None:
        """Check that policies, trained or not, can be estimated so.

        Arguments:
            policies: by what an error calls them.

        Raises:
            ConfigError: They do not fit the log.
        """
        from offline_core.judging.decisions.work import check  # here, for what is reused needs no Torch

        check(self.config, self.log, policies, self.model)

    @functools.cached_property
    def side(self) -> Side:
        """The log, with a model of what acted: it is fitted now if it is needed and not there.

        Raises:
            DataError: The log is not what it has to be, or has too few episodes for a model of what acted.
        """
        from offline_core.judging.decisions.evidence import Side, behaviour_of  # they need Torch
        from offline_core.policies.checkpoint import load_policy

        acted = behaviour_of(self.config, self.log, self.folder)
        policy = None if acted is None else load_policy(acted, None if self.model is None else self.model.manifest)
        history = lineage(self.log.location.uri, self.log.manifest.version)
        return Side(SELECT, self.log, self.config, history, policy, None)

    def scored(self, checkpoints: Sequence[str]) -> list[Ranked]:
        """What the log says of each policy, with the scores that they have among each other.

        Raises:
            DataError, LearningError: The log is not what it has to be, or a Q function grew beyond every number.
        """
        from offline_core.judging.decisions.judging import held_against, scored  # it needs Torch

        fingerprints = [find_policy(uri)[1].fingerprint for uri in checkpoints]
        new = {key: uri for key, uri in zip(fingerprints, checkpoints, strict=True) if key not in self._held}
        policies = [*new.values()]
        for begin in range(0, len(policies), MOST):
            for each in held_against(self.side, contenders_of(policies[begin : begin + MOST], self.log)):
                unloaded = replace(each.contender)  # its weights are not needed again
                self._held[unloaded.fingerprint] = replace(each, contender=unloaded)
        known = scored([self._held[key] for key in dict.fromkeys(fingerprints)])
        by_fingerprint = {each.contender.fingerprint: each for each in known}
        return [by_fingerprint[key] for key in fingerprints]
