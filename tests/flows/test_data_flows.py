"""The flows of the data plane under a real Prefect server, on RLlib's real recordings: each leaves its card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from prefect import Flow
from prefect.exceptions import ParameterTypeError
from pyarrow import fs

from flows.cli import app
from flows.stages import (
    check,
    compact,
    convert,
    export,
    import_data,
    merge,
    mix,
    prune,
    split,
)
from offline_core.data.curation.config import CompactionConfig, PruningConfig, SplitConfig
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import DatasetRef, open_dataset
from offline_core.data.episodes import encode
from offline_core.data.formats.sources.opening import SourceConfig
from offline_core.data.importing.config import ConversionConfig, ImportConfig
from offline_core.data.quality.config import QualityConfig
from offline_core.errors import QualityError
from offline_core.policies.recording.mixing import MixtureConfig
from tests.data.datasets.factories import cut_in_half, episode, write_dataset, write_items
from tests.flows.test_flows import artifacts_of, latest_run

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.filterwarnings("default")]


def card_of(flow: Flow, key: str) -> str:
    """The one card that the latest run left, which has to be a run of `flow`."""
    run = latest_run()
    assert run.state is not None and run.flow_id is not None
    cards = {card.key: str(card.data) for card in artifacts_of(run.id) if card.key}  # Prefect adds one of its own to failures
    assert cards.keys() == {key}
    return cards[key]


@pytest.mark.slow
def test_from_sample_batches_to_training_data(rllib_recordings: Path, tmp_path: Path) -> None:
    imported = import_data(source=str(rllib_recordings / "cartpole_json_packed"), output=str(tmp_path / "imported"))
    assert (imported.counts.rows, imported.counts.episodes) == (15_432, 40)
    card = card_of(import_data, "import-card")
    assert "15,432" in card and "data:image/png;base64," in card

    report = check(dataset=imported.dataset.uri)
    assert report.verdict == "pass" and report.statistics.steps == 15_432
    assert "non_finite" in card_of(check, "check-card")

    table = convert(
        dataset=imported.dataset.uri, output=str(tmp_path / "table"), config=ConversionConfig(format="table")
    ).dataset
    assert open_dataset(table.uri).manifest.format == "table" and table.steps == 15_432
    assert "Bytes per step" in card_of(convert, "convert-card")

    sides = split(dataset=table.uri, output=str(tmp_path / "split"), config=SplitConfig(held_out_fraction=0.25))
    assert (sides.train.episodes, sides.held_out.episodes) == (30, 10)
    card_of(split, "split-card")
    assert check(dataset=sides.train.uri, config=QualityConfig(held_out=sides.held_out.uri)).verdict == "pass"

    merged = merge(datasets=[sides.train.uri, sides.held_out.uri, sides.train.uri], output=str(tmp_path / "merged"))
    assert (merged.dataset.episodes, merged.duplicates) == (40, 30)
    card_of(merge, "merge-card")

    files = FilesConfig(max_rows_per_file=4_000)
    compacted = compact(dataset=merged.dataset.uri, output=str(tmp_path / "compacted"), config=CompactionConfig(files=files))
    assert compacted.files_after > compacted.files_before
    card_of(compact, "compact-card")

    mixed = mix(output=str(tmp_path / "mixed"), config=MixtureConfig(datasets={compacted.dataset.uri: 1.0}, steps=2_000))
    assert mixed.is_complete and mixed.dataset.steps >= 2_000
    card_of(mix, "mix-card")

    export(dataset=imported.dataset.uri, output=str(tmp_path / "minari"))
    card_of(export, "export-card")
    folder = tmp_path / "minari/offline/dataset-v0"
    assert (folder / "card.md").is_file() and not (tmp_path / "minari/card.md").exists()  # others may export there, too
    assert export(dataset=imported.dataset.uri, output=str(tmp_path / "minari")).reused
    back = import_data(source=str(tmp_path / "minari/offline/dataset-v0"), output=str(tmp_path / "back"))
    assert back.counts.steps == 15_432
    assert open_dataset(back.dataset.uri).manifest.statistics.returns == open_dataset(table.uri).manifest.statistics.returns


def test_the_card_does_not_know_how_many_rows_were_in_a_damaged_file(tmp_path: Path) -> None:
    for number in range(2):
        write_items(tmp_path / f"in/{number}.parquet", [encode(episode(number))])
    cut_in_half(tmp_path / "in/1.parquet")
    import_data(source=str(tmp_path / "in"), output=str(tmp_path / "imported"), config=ImportConfig(unreadable="quarantine"))
    card = card_of(import_data, "import-card")
    assert "at least 7" in card
    assert "at least 0" in card


def with_actions_outside(folder: Path) -> DatasetRef:
    """Of two actions, one of which does not exist, in 21 of 21 steps."""
    return write_dataset(folder, [episode(number, actions=np.full(7, 2)) for number in range(3)]).ref


def test_a_run_stops_at_data_that_is_not_good_but_leaves_the_card(tmp_path: Path) -> None:
    bad = with_actions_outside(tmp_path / "bad")
    with pytest.raises(QualityError, match="actions_outside_space"):
        check(dataset=bad.uri)
    card = card_of(check, "check-card")
    assert "21" in card
    assert latest_run().state_name == "Failed"
    done = CliRunner().invoke(app, ["check", bad.uri])
    assert done.stdout.startswith("[x] Gate failed: Broken actions_outside_space;") and len(done.stdout.splitlines()) <= 15
    assert str(done.exception) == f"{bad} breaks 1 of 17 rules", "the card says the rest"
    assert check(dataset=bad.uri, config=QualityConfig(stop_on="never")).verdict == "fail"


def test_what_passes_is_told_and_nothing_else(rllib_recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what failed and was let by, nor other people's files, which have no version to go on with."""
    told: list[object] = []
    monkeypatch.setattr("flows.stages.announce", lambda *what: told.append(what))
    good = import_data(source=str(rllib_recordings / "cartpole_json_packed"), output=str(tmp_path / "good")).dataset
    bad = with_actions_outside(tmp_path / "bad")
    for uri in (good.uri, bad.uri, str(rllib_recordings / "cartpole_episodes")):
        check(dataset=uri, config=QualityConfig(stop_on="never"))
    assert told == [(good, "dataset.imported"), (good, "dataset.passed")]


@pytest.mark.slow
def test_objects_from_python_in_a_flow_that_is_called_here(rllib_recordings: Path, tmp_path: Path) -> None:
    """Prefect's record of the run, the card and the manifest have the text that stands for them."""
    recordings = fs.SubTreeFileSystem(str(rllib_recordings), fs.LocalFileSystem())
    source = SourceConfig(arguments={"filesystem": recordings})
    imported = import_data(
        source="cartpole_json_packed", output=str(tmp_path / "imported"), config=ImportConfig(source=source)
    ).dataset
    assert imported.episodes == 40 and "SubTreeFileSystem#" in card_of(import_data, "import-card")
    config = PruningConfig.model_validate({"filters": [lambda episode: len(episode) > 300]})
    name = str(config.filters[0])
    pruned = prune(dataset=imported.uri, output=str(tmp_path / "pruned"), config=config)
    assert pruned.after.episodes < 40 and "<lambda>#" in name
    assert latest_run().parameters["config"]["filters"] == [{"path": name, "arguments": {}}]
    assert name in open_dataset(str(tmp_path / "pruned")).manifest.model_dump_json()
    with pytest.raises(ParameterTypeError, match="stands for an object of another Python process"):
        prune(dataset=imported.uri, output=str(tmp_path / "again"), config=config.model_dump(mode="json"))
