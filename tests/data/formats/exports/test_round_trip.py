"""Episodes of random spaces: exported and imported again they are what they were, or the export says what it cannot hold."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.episodes import Episode
from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.formats.exports.episode_sink import EXPORTS
from offline_core.errors import EpisodeError, SpaceError
from tests.cases import examples
from tests.data.datasets.factories import episode, write_dataset
from tests.data.episodes.strategies import any_spaces, values
from tests.data.formats.exports.test_sample_batch import read_back

REFUSALS = {"minari": r"names in HDF5 are text without /", "d4rl": r"names in HDF5 are text without /|is a tuple, which D4RL"}
"""Of the export; the other formats hold all spaces."""


@pytest.mark.slow
@pytest.mark.parametrize("format", EXPORTS)
@settings(max_examples=examples(25))
@given(any_spaces(), any_spaces(), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_what_is_exported_is_imported_as_it_was(
    format: str, observation_space: gym.Space[Any], action_space: gym.Space[Any], lengths: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    some = [drawn(observation_space, action_space, number, steps, rng) for number, steps in enumerate(lengths)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_dataset(folder / "in", some)
        try:
            export(ExportConfig(format=format), dataset=str(folder / "in"), output=str(folder / "out"))
        except (EpisodeError, SpaceError) as error:
            assert format in REFUSALS and re.search(REFUSALS[format], str(error)), error
            return
        source = folder / "out/offline/dataset-v0" if format == "minari" else folder / "out"
        found = read_back(source, folder / "again", some[0])
    assert sorted(found.values(), key=lambda each: each.eps_id) == some


def drawn(
    observation_space: gym.Space[Any], action_space: gym.Space[Any], number: int, steps: int, rng: np.random.Generator
) -> Episode:
    return episode(
        number,
        steps,
        observations=values(observation_space, steps + 1, rng),
        actions=values(action_space, steps, rng),
        extras={},
        observation_space=observation_space,
        action_space=action_space,
    )
