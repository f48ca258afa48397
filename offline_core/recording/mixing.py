"""A dataset out of others and of policies that play meanwhile, by weight."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator

from offline_core.code_permission import remember_code
from offline_core.conversion.importing import open_or_import
from offline_core.conversion.mixing import mixed
from offline_core.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import read_policy_manifest
from offline_core.progress import progress
from offline_core.recording.config import MixtureConfig
from offline_core.recording.result import MixtureResult
from offline_core.recording.sampler import sample_episodes
from offline_core.storage.committing import commit, find_version
from offline_core.storage.dataset import Dataset
from offline_core.storage.manifest import Operation
from offline_core.storage.preparing import prepared
from offline_core.storage.reader import episodes
from offline_core.storage.writer import EpisodeWriter

log = logging.getLogger(__name__)

EPISODES_AT_A_TIME = 256


def mix_datasets(config: MixtureConfig, *, output: str) -> MixtureResult:
    """Writes whole episodes of all sources, by weight in steps, as the next version of `output`.

    It has their environment, if it is the same for all.

    Raises:
        ConfigError: there is no source, a weight is not above zero, or spaces differ.
    """
    remember_code(config)
    if not config.datasets and not config.policies:
        raise ConfigError("A mixture needs datasets or policies, with their weights.")
    sources = {uri: open_or_import(uri, None, output=output) for uri in config.datasets}
    policies = {uri: read_policy_manifest(uri) for uri in config.policies}
    played_in = {uri: config.environment or policy.environment for uri, policy in policies.items()}
    where = {uri: environment and environment.model_dump(mode="json") for uri, environment in played_in.items()}
    operation = Operation.of("mix_datasets", config, version=2, environment=where)
    parents = [
        *(source.parent_entry for source in sources.values()),
        *(policy.parent_entry(uri) for uri, policy in policies.items()),
    ]
    if found := find_version(output, operation, parents):
        return _result(found, config, reused=True)
    environments = [*(source.manifest.environment for source in sources.values()), *played_in.values()]
    streams = {uri: (weight, episodes(sources[uri])) for uri, weight in config.datasets.items()}
    streams |= {
        uri: (weight, sample_episodes(uri, environment=config.environment, seed=config.seed, manifest=policies[uri]))
        for uri, weight in config.policies.items()
    }
    steps, spaces, origin = dict.fromkeys(streams, 0), None, dict[str, str]()
    with prepared(output) as root:
        with (
            EpisodeWriter(root, "part", format=config.format, config=config.files) as writer,
            progress(config.steps, what="mix", unit="step") as bar,
            contextlib.ExitStack() as opened,
        ):
            for _, stream in streams.values():  # environments are closed here and now, not by the garbage collector
                opened.enter_context(contextlib.closing(stream))
            chosen = _up_to(mixed(streams), config.steps)
            while batch := list(itertools.islice(chosen, EPISODES_AT_A_TIME)):
                for uri, episode in batch:
                    own = (episode.observation_space, episode.action_space)
                    spaces = spaces or own
                    if own != spaces:
                        raise ConfigError(f"{uri} has the spaces {own} where others have {spaces}; they cannot be mixed.")
                    if origin.setdefault(episode.eps_id, uri) != uri:
                        raise ConfigError(
                            f"{uri} holds episode {episode.eps_id}, and so does {origin[episode.eps_id]}; prune one of them."
                        )
                    steps[uri] += len(episode)
                    bar.update(len(episode))
                writer.write([episode for _, episode in batch])
        if spaces is None:
            raise ConfigError("The sources hold no episode.")
    dataset = commit(
        output,
        writer.files,
        format=config.format,
        operation=operation,
        statistics=writer.statistics,
        parents=parents,
        environment=environments[0] if environments.count(environments[0]) == len(environments) else None,
        observation_space=spaces[0],
        action_space=spaces[1],
        report={"steps": steps},
    )
    log.info("Mixed %s", dataset.ref)
    return _result(dataset, config)


def _result(dataset: Dataset, config: MixtureConfig, *, reused: bool = False) -> MixtureResult:
    steps: dict[str, int] = dataset.manifest.report["steps"]
    is_complete = sum(steps.values()) >= config.steps
    return MixtureResult(dataset=dataset.ref, steps=steps, is_complete=is_complete, reused=reused)


def _up_to(episodes: Iterator[tuple[str, Episode]], steps: int) -> Iterator[tuple[str, Episode]]:
    """The first episodes that together have this many steps, or all."""
    for uri, episode in episodes:
        yield uri, episode
        steps -= len(episode)
        if steps <= 0:
            return
