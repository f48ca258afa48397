"""SampleBatches written here, read by RLlib's own JsonReader."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offline_core.data.formats.exports.sample_batch import SampleBatchSink
from tests.data.datasets.factories import episode

if any(importlib.util.find_spec(name) is None for name in ("ray", "tree", "scipy")):
    pytest.skip("RLlib needs the 'interop' extra: pip install -e '.[interop]'", allow_module_level=True)


@pytest.mark.filterwarnings("ignore")  # RLlib's own
@pytest.mark.parametrize("compress", [("obs", "new_obs"), ()], ids=["packed", "plain"])
def test_rllib_reads_what_is_written_here(tmp_path: Path, compress: tuple[str, ...]) -> None:
    from ray.rllib.offline.json_reader import JsonReader

    given = {one.eps_id: one for one in (replace(episode(i), infos=[{}, *[{"n": i}] * 7]) for i in range(3))}
    with SampleBatchSink(str(tmp_path / "out"), compress_columns=compress) as sink:
        sink.write(list(given.values()))
    reader, found = JsonReader(str(tmp_path / "out" / "batches")), {}
    for _ in range(3):
        batch = reader.next()
        found[str(batch["eps_id"][0])] = batch
    assert found.keys() == given.keys()
    for eps_id, batch in found.items():
        one = given[eps_id]
        assert batch.count == len(one)
        np.testing.assert_array_equal(batch["obs"], one.get_observations(slice(0, -1)))
        np.testing.assert_array_equal(batch["new_obs"], one.get_observations(slice(1, None)))
        np.testing.assert_array_equal(batch["actions"], one.actions)
        np.testing.assert_allclose(batch["rewards"], one.rewards, rtol=1e-6)  # RLlib keeps them as float32
        assert list(batch["terminateds"]) == [False] * 6 + [one.terminated]
        assert [info["n"] for info in batch["infos"]] == [one.get_infos(1)["n"]] * 7
