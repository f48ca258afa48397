"""Several streams of episodes become one, each with its share of the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from offline_core.episodes import Episode
from offline_core.errors import ConfigError


def mixed(streams: Mapping[str, tuple[float, Iterable[Episode]]]) -> Iterator[tuple[str, Episode]]:
    """(name of the stream, episode), whole episodes, until the stream whose turn it is has no more.

    Next is always the stream that is furthest behind its share of the steps, the first of equals. So shares hold at any
    moment, up to an episode, and the same streams give the same mixture.

    Arguments:
        streams: (weight, episodes) by name; weights need not add up to 1.

    Raises:
        ConfigError: a weight is not above zero.
    """
    if wrong := [name for name, (weight, _) in streams.items() if not weight > 0]:
        raise ConfigError(f"The weight of {', '.join(wrong)} is not above zero; leave it out instead.")
    whole = sum(weight for weight, _ in streams.values())
    shares = {name: weight / whole for name, (weight, _) in streams.items()}
    iterators = {name: iter(episodes) for name, (_, episodes) in streams.items()}
    steps = dict.fromkeys(streams, 0)
    while streams:
        total = sum(steps.values())
        name = max(shares, key=lambda each: shares[each] * total - steps[each] if total else shares[each])
        episode = next(iterators[name], None)
        if episode is None:
            return
        steps[name] += len(episode)
        yield name, episode
