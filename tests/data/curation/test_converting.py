"""Between tables and episodes: in this process, and by tasks of Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.data.curation.converting import convert
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.config import ConversionConfig
from offline_core.errors import CorruptFileError
from tests.data.datasets.factories import cut_in_half, episode, write_dataset

pytestmark = pytest.mark.shared_ray

SMALL = FilesConfig(max_rows_per_file=1_000, max_bytes_per_file=2**16)


@pytest.mark.slow
def test_ray_writes_the_same_files_from_several(tmp_path: Path, ray_up: None) -> None:
    recorded = [episode(number, steps=500) for number in range(12)]
    write_dataset(tmp_path / "table", recorded, format="table", max_rows_per_file=1_000)
    made = {
        engine: convert(
            ConversionConfig(files=SMALL, engine=engine), dataset=str(tmp_path / "table"), output=str(tmp_path / engine)
        ).dataset
        for engine in ("local", "ray")
    }
    assert made["local"].fingerprint == made["ray"].fingerprint
    converted = open_dataset(made["ray"].uri)
    assert len({file.path.rpartition("-")[0] for file in converted.manifest.files}) > 1, "it was one share"
    assert [each.eps_id for each in converted.episodes()] == [each.eps_id for each in recorded]


def test_pieces_of_one_episode_stay_apart(tmp_path: Path) -> None:
    whole = episode(0, 20)
    some = [whole.slice(0, 5), whole.slice(5, 8), whole.slice(10, 20), episode(1), whole.slice(8, 10)]
    source = write_dataset(tmp_path / "in", some)
    made = convert(ConversionConfig(format="table"), dataset=source.location.uri, output=str(tmp_path / "out"))
    assert list(open_dataset(made.dataset.uri).episodes()) == some
    assert made.statistics.episodes == 5


def test_an_error_in_a_task_is_the_one_raised_here(tmp_path: Path, ray_up: None) -> None:
    source = write_dataset(tmp_path / "table", [episode(0, steps=500)], format="table")
    cut_in_half(tmp_path / "table" / source.manifest.files[0].path)
    with pytest.raises(CorruptFileError, match=source.manifest.files[0].path):
        convert(ConversionConfig(engine="ray"), dataset=str(tmp_path / "table"), output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
