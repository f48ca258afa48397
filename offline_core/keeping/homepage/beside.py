"""What a policy would have done in a recorded episode, beside what was done."""

from __future__ import annotations

from typing import Any

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import Episode, EpisodeBatch, columns
from offline_core.keeping.homepage.signals import signals_of


def actions_beside(dataset: Dataset, episode: Episode, policy: str) -> dict[str, Any]:
    """The greedy actions of a policy for the observations of an episode, by the names of the recorded ones.

    Arguments:
        policy: URI of a checkpoint.

    Raises:
        CheckpointError: the policy cannot be read.
        ConfigError: it does not fit the dataset.
    """
    from offline_core.judging.estimation.contenders import contenders_of
    from offline_core.judging.estimation.estimate import check_fits
    from offline_core.judging.estimation.observations import Observations, columns_read, distribution_inputs

    [contender] = contenders_of([policy], dataset)
    target = contender.policy
    check_fits(target, dataset)
    batch = EpisodeBatch.of([episode], (columns.OBS, columns.ACTIONS, *columns_read([target]))).flat()
    inputs = distribution_inputs(target, Observations(batch, target.observation_space))
    actions = target.head.to_env(target.head.mode(inputs))
    signals = signals_of(episode, dataset.manifest.input_columns, actions=actions).as_json()
    return {"policy": contender.name, "names": signals["names"], "values": signals["values"]}
