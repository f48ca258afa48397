"""What is said of a dataset: of all its versions, carried on into what is made of it, and no part of what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import offline_core as offline
from flows.cli import app
from offline_core.data.datasets.about import FOLDER, About, read_about
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, DatasetNotFoundError
from offline_core.keeping.homepage.facts import dataset_facts
from offline_core.keeping.inspection import card_at, dataset_card
from tests.data.datasets.factories import episode, flip_bit, write_dataset

EPISODES = [episode(i) for i in range(6)]
SAID = {
    "author": "Ada Lovelace",
    "license": "CC-BY-4.0",
    "description": "Runs of an engine:\n\n# all --- of them\n",
    "source": "https://example.org/engine",
}
FACTS = SAID | {"description": SAID["description"].strip()}


@pytest.fixture
def data(tmp_path: Path) -> offline.Dataset:
    write_dataset(tmp_path / "data", EPISODES)
    offline.about(tmp_path / "data", **SAID)
    return offline.open_dataset(tmp_path / "data")


def said_of(place: Path | str) -> dict[str, str]:
    return read_about(Location.of(str(place))).facts


def test_what_is_said_is_of_all_versions_and_changes_no_fingerprint(tmp_path: Path, data: offline.Dataset) -> None:
    assert offline.about(data).facts == FACTS
    before = data.ref.fingerprint
    write_dataset(tmp_path / "data", EPISODES[:3])
    assert offline.about(tmp_path / "data").facts == FACTS
    assert offline.open_dataset(tmp_path / "data", 1).ref.fingerprint == before


def test_a_part_is_corrected_or_taken_back_and_each_entry_says_who_and_when(tmp_path: Path, data: offline.Dataset) -> None:
    changed = offline.about(data, license="MIT", source="")
    assert changed == About(author=FACTS["author"], license="MIT", description=FACTS["description"])
    offline.about(data, license="MIT")
    files = sorted((tmp_path / "data" / FOLDER).glob("*.json"))
    assert [file.name for file in files] == ["000001.json", "000002.json"], "the same once more is no entry"
    assert all({"said_at", "said_by", "before"} <= json.loads(file.read_text()).keys() for file in files)


def test_what_is_made_of_datasets_begins_with_what_is_said_of_them(tmp_path: Path, data: offline.Dataset) -> None:
    pruned = data.prune("length >= 1", output=tmp_path / "pruned")
    assert offline.about(pruned).facts == FACTS
    offline.about(pruned, license="MIT")
    write_dataset(tmp_path / "other", [episode(i) for i in range(6, 9)])
    offline.about(tmp_path / "other", author="Charles Babbage", license="MIT")
    merged = offline.merge([data, tmp_path / "other"], output=tmp_path / "merged")
    assert offline.about(merged).author in ("Ada Lovelace; Charles Babbage", "Charles Babbage; Ada Lovelace")
    assert {*str(offline.about(merged).license).split("; ")} == {"CC-BY-4.0", "MIT"}
    assert said_of(tmp_path / "data") == FACTS
    data.prune("length >= 2", output=tmp_path / "pruned")
    assert offline.about(tmp_path / "pruned").license == "MIT", "a later version does not say it anew"


def test_of_a_dataset_that_says_nothing_nothing_is_written(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", EPISODES)
    offline.prune(tmp_path / "data", "length >= 1", output=tmp_path / "pruned")
    assert not list(tmp_path.rglob(FOLDER)) and offline.about(tmp_path / "pruned") == About()


@pytest.mark.parametrize(
    ("format", "folder", "arguments"), [("minari", "lab/engine-v0", {"dataset_id": "lab/engine-v0"}), ("lerobot", "", {})]
)
def test_exports_say_it_and_imports_read_it(
    tmp_path: Path, data: offline.Dataset, format: str, folder: str, arguments: dict[str, Any]
) -> None:
    def exported() -> offline.ExportConfig:
        return offline.export(data, output=tmp_path / "out", format=format, arguments=arguments)  # type: ignore[return-value]

    exported()
    back = offline.import_data(tmp_path / "out" / folder, output=tmp_path / "back", source={"format": format})
    assert offline.about(back).facts == FACTS
    assert list(back) == [*data] or len(back) == len(data)
    assert exported().reused  # type: ignore[attr-defined]
    offline.about(data, author="Ada")
    assert not exported().reused, "it says something else"  # type: ignore[attr-defined]
    again = offline.import_data(tmp_path / "out" / folder, output=tmp_path / "again", source={"format": format})
    assert offline.about(again).author == "Ada"


def test_minaris_list_of_authors_is_one_text(tmp_path: Path, data: offline.Dataset) -> None:
    offline.export(data, output=tmp_path / "out", arguments={"dataset_id": "lab/engine-v0"})
    metadata = tmp_path / "out/lab/engine-v0/data/metadata.json"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"author": ["B", "A"], "license": 3}))
    back = offline.import_data(tmp_path / "out/lab/engine-v0", output=tmp_path / "back", source={"format": "minari"})
    assert offline.about(back) == About(author="A, B", description=FACTS["description"], source=FACTS["source"])


def test_cards_descriptions_and_the_report_show_it(tmp_path: Path, data: offline.Dataset) -> None:
    facts = dataset_facts(data)
    assert {name: facts[name] for name in FACTS} == FACTS
    for text in (dataset_card(data.location.uri, None).terminal(verbose=True), repr(data.describe())):
        assert "Ada Lovelace" in text and "CC-BY-4.0" in text and "https://example.org/engine" in text
    offline.report(tmp_path, output=tmp_path / "page.html")
    assert "Ada Lovelace" in (tmp_path / "page.html").read_text()


def test_a_training_has_a_note_which_outlasts_it(tmp_path: Path, data: offline.Dataset) -> None:
    run = tmp_path / "run"

    def train(updates: int) -> None:
        offline.train(data, algorithm="bc", optimizer={"max_updates": updates}, output=run)

    train(2)
    before = (run / "result.json").read_bytes()
    said = CliRunner().invoke(app, ["about", str(run), "--description", "The baseline #paper"])
    assert said.stdout == "description: The baseline #paper\n"
    assert (run / "result.json").read_bytes() == before and not (run / "_versions").exists()
    for place in (run, run / "best"):
        assert "The baseline #paper" in card_at(str(place)).terminal(verbose=True)
    assert not any(each.wrong for each in offline.verify(tmp_path))
    train(3)
    assert offline.about(run / "best").description == "The baseline #paper"
    assert offline.about(run).description == "The baseline #paper"
    assert offline.about(run, description="") == About()
    with pytest.raises(DatasetNotFoundError):
        offline.about(tmp_path)


def test_the_command_says_and_shows_it(tmp_path: Path, data: offline.Dataset) -> None:
    write_dataset(tmp_path / "other", EPISODES)
    assert CliRunner().invoke(app, ["about", str(tmp_path / "other")]).stdout.startswith("Nothing is said of ")
    said = CliRunner().invoke(app, ["about", str(tmp_path / "other"), "--author", "Grace Hopper", "--license", "MIT"])
    assert said.stdout == "author: Grace Hopper\nlicense: MIT\n"
    assert CliRunner().invoke(app, ["about", str(tmp_path / "other")]).stdout == said.stdout


def test_secrets_long_texts_and_places_without_a_dataset(tmp_path: Path, data: offline.Dataset) -> None:
    assert "hunter2" not in str(offline.about(data, source="https://me:hunter2@example.org/x").source)
    with pytest.raises(ConfigError, match=r"This cannot be said of .*author"):
        offline.about(data, author="a" * 20_001)
    with pytest.raises(DatasetNotFoundError, match="There is no dataset"):
        offline.about(tmp_path / "nowhere", author="me")


def test_verify_compares_what_is_said(tmp_path: Path, data: offline.Dataset) -> None:
    def found() -> dict[str, tuple[str, ...]]:
        return {each.what: each.wrong for each in offline.verify(tmp_path)}

    assert found() == {"version": (), "about log": ()}
    flip_bit(tmp_path / "data" / FOLDER / "000001.json", 200)
    assert found()["version"] == () and "000001.json" in found()["about log"][0]


def test_a_damaged_entry_is_named_and_what_is_made_of_it_says_nothing(tmp_path: Path, data: offline.Dataset) -> None:
    flip_bit(tmp_path / "data" / FOLDER / "000001.json", 200)
    with pytest.raises(CorruptFileError, match=r"000001\.json"):
        offline.about(data)
    pruned = data.prune("length >= 1", output=tmp_path / "pruned")
    assert offline.about(pruned) == About()
