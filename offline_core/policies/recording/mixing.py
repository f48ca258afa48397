"""Mix datasets and new episodes of policies into one dataset, by weight."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import Field

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.data.datasets.dataset_card import dataset_card, numbered
from offline_core.data.datasets.new_version import NewVersion
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode
from offline_core.data.episodes.codecs import Format
from offline_core.data.episodes.index import OTHER_IDS, content_of
from offline_core.data.inputs.input_columns import common_inputs
from offline_core.data.store.allowed_roots import IS_URI
from offline_core.errors import ConfigError
from offline_core.policies.manifest import PolicyManifest, environment_for, find_policy
from offline_core.runtime.config import Config, EnvironmentSpec, closed, without_defaults
from offline_core.runtime.progress import progress
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result
from offline_core.runtime.stage import Made, output, stage
from offline_core.runtime.units import count_text

EPISODES_AT_A_TIME = 256
EPISODES_PER_ROUND = 16


class MixtureConfig(Config):
    """The sources of a mixture, and the weight of each."""

    datasets: Annotated[dict[str, float], IS_URI] = Field(
        {}, description='Weight by folder of a dataset: {"runs/expert-recording": 0.7, "runs/random": 0.3}.'
    )
    policies: Annotated[dict[str, float], IS_URI] = Field(
        {},
        description="Weight by checkpoint of a policy, which plays new episodes for its share.",
    )
    environment: EnvironmentSpec | None = Field(None, description="Where policies play; None: where each was trained.")
    steps: int = Field(100_000, ge=1, description="Stop with the episode that reaches this many.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of the policies' episodes.")
    format: Format = Field("episodes", description="What to write: an episode a row, or a step a row.")
    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)


class MixtureResult(Result):
    """A mixture, and the steps that each source gave."""

    dataset: DatasetRef
    steps: dict[str, int] = Field(description="Steps by source.")
    is_complete: bool = Field(description="False: a dataset ran out of episodes before `steps` was reached.")

    def card(self) -> Card:
        every = max(1, sum(self.steps.values()))
        facts, details = numbered(
            [f"{uri}: {count_text(steps, 'step')}, {100 * steps / every:.0f} %" for uri, steps in self.steps.items()]
        )
        return dataset_card(
            "Mixture",
            [self.dataset],
            {"mixed": self.dataset},
            verdict="good" if self.is_complete else "fair",
            word="Mixed" if self.is_complete else "Mixed in part",
            sentence=f"{count_text(self.dataset.episodes, 'episode')} of {count_text(len(self.steps), 'source')}.",
            warnings=[]
            if self.is_complete
            else [
                f"A source ran out of episodes: the mixture has {self.dataset.steps:,} steps, fewer than asked for. Lower "
                "steps, or give that source more episodes or a smaller weight."
            ],
            facts={"To": self.dataset, **facts},
            details=details,
        )


@stage(
    "mix",
    version=2,
    after="merge",
    arguments=(output("runs/mixture"),),
    positional=("datasets",),
    writes=("dataset",),
    hint="Example: -s 'datasets={runs/a: 0.7, runs/b: 0.3}'.",
    short=("datasets", "policies", "environment", "steps", "seed"),
)
def mix(config: MixtureConfig, *, output: str) -> Made[MixtureResult]:
    """Write whole episodes of datasets and playing policies, by weight in steps.

    They are the next version of `output`. The dataset names the environment of its sources if they share one.

    Raises:
        ConfigError: no source is given, a weight is not above zero, or spaces differ.
    """
    if not config.datasets and not config.policies:
        raise ConfigError("A mixture needs datasets or policies, with their weights.")
    sources = {uri: open_committed(uri) for uri in config.datasets}
    checkpoints = {policy: find_policy(policy) for policy in config.policies}
    policies = dict(checkpoints.values())
    weights = {checkpoints[policy][0]: weight for policy, weight in config.policies.items()}
    if len(weights) < len(config.policies):
        raise ConfigError(f"Two of the policies {', '.join(config.policies)} are the same checkpoint: name it once.")
    config = config.model_copy(update={"policies": weights})
    played_in = {uri: config.environment or policy.environment for uri, policy in policies.items()}
    where = {uri: environment and without_defaults(environment) for uri, environment in played_in.items()}
    parents = [
        *(source.parent_entry for source in sources.values()),
        *(policy.parent_entry(uri) for uri, policy in policies.items()),
    ]

    def result(dataset: Dataset) -> MixtureResult:
        taken: dict[str, int] = dataset.manifest.report["steps"]
        is_complete = sum(taken.values()) >= config.steps
        return MixtureResult(dataset=dataset.ref, steps=taken, is_complete=is_complete)

    begun = yield NewVersion(output, config, parents, result, more={"environment": where})
    environments = [*(source.manifest.environment for source in sources.values()), *played_in.values()]
    inputs = common_inputs([(uri, source.manifest.input_columns) for uri, source in sources.items()])
    streams = {uri: (weight, sources[uri].episodes()) for uri, weight in config.datasets.items()}
    streams |= {
        uri: (weight, sample_episodes(uri, policies[uri], environment=config.environment, seed=config.seed))
        for uri, weight in config.policies.items()
    }
    steps, spaces, taken = dict.fromkeys(streams, 0), None, dict[str, tuple[str, str]]()
    with (
        EpisodeWriter(begun.folder, "part", format=config.format, config=config.files) as writer,
        progress(config.steps, what="mix", unit="step") as bar,
        contextlib.ExitStack() as opened,
    ):
        for _, stream in streams.values():  # closes environments at once, not when garbage is collected
            opened.enter_context(contextlib.closing(stream))
        once = {uri: (weight, _not_taken(uri, stream, taken)) for uri, (weight, stream) in streams.items()}
        chosen = mixed(once, config.steps)
        while batch := list(itertools.islice(chosen, EPISODES_AT_A_TIME)):
            for uri, episode in batch:
                own = (episode.observation_space, episode.action_space)
                spaces = spaces or own
                if own != spaces:
                    raise ConfigError(f"{uri} has the spaces {own} where others have {spaces}; they cannot be mixed.")
                steps[uri] += len(episode)
                bar.update(len(episode))
            writer.write([episode for _, episode in batch])
    if spaces is None:
        raise ConfigError(f"The sources {sorted(streams)} hold no episode.")
    return begun.commit(
        writer.files,
        format=config.format,
        statistics=writer.statistics,
        environment=environments[0] if environments.count(environments[0]) == len(environments) else None,
        observation_space=spaces[0],
        action_space=spaces[1],
        input_columns=inputs,
        report={"steps": steps},
    )


def sample_episodes(
    policy: str, manifest: PolicyManifest, *, environment: EnvironmentSpec | None, seed: int
) -> Generator[Episode]:
    """Play complete episodes of the checkpoint `policy` without end, in this process and with exploration.

    Arguments:
        manifest: the weights have to be the ones it names.
        environment: None: the one it was trained in.

    Raises:
        CheckpointError: the weights are other ones.
        ConfigError: the environment cannot be made.
    """
    from offline_core.policies.checkpoint import load_policy  # here, for what is reused needs no Torch
    from offline_core.policies.recording.player import EpisodesToPlay, play

    player = load_policy(policy, manifest)
    environment = environment_for(policy, manifest, environment)
    for number in itertools.count():
        task = EpisodesToPlay(round=number, recorder=0, episodes=EPISODES_PER_ROUND)
        identity, num_envs = manifest.fingerprint, EPISODES_PER_ROUND
        for chunk in play(player, environment, task, identity=identity, num_envs=num_envs, seed=seed, explore=True):
            yield from chunk


def _not_taken(uri: str, episodes: Iterable[Episode], taken: dict[str, tuple[str, str]]) -> Iterator[Episode]:
    """The episodes of a source that no other gave before; `taken` are the sources and contents of those, by id.

    Raises:
        ConfigError: another source gave an episode of the same id with other steps.
    """
    for episode in episodes:
        content = content_of(episode)
        origin, before = taken.setdefault(episode.eps_id, (uri, content))
        if origin == uri:
            yield episode
        elif before != content:
            raise ConfigError(f"{uri} holds episode {episode.eps_id}, and so does {origin}, with other steps. {OTHER_IDS}")


def mixed(streams: Mapping[str, tuple[float, Iterable[Episode]]], most: int) -> Iterator[tuple[str, Episode]]:
    """Yield (name of the stream, episode) until the stream whose turn it is has no more episodes, or all have enough steps.

    The next stream is always the one that is furthest behind its share of the steps; the first of equals. So shares hold at
    any moment, up to an episode, and the same streams give the same mixture.

    Arguments:
        streams: (weight, episodes) by name; weights need not add up to 1.
        most: steps of all streams together that are enough.

    Raises:
        ConfigError: a weight is not above zero.
    """
    if wrong := [name for name, (weight, _) in streams.items() if not weight > 0]:
        raise ConfigError(f"The weight of {', '.join(wrong)} is not above zero; leave it out instead.")
    whole = sum(weight for weight, _ in streams.values())
    shares = {name: weight / whole for name, (weight, _) in streams.items()}
    iterators = {name: iter(episodes) for name, (_, episodes) in streams.items()}
    steps = dict.fromkeys(streams, 0)
    while streams and (total := sum(steps.values())) < most:
        name = max(shares, key=lambda stream: shares[stream] * total - steps[stream] if total else shares[stream])
        episode = next(iterators[name], None)
        if episode is None:
            return
        steps[name] += len(episode)
        yield name, episode
