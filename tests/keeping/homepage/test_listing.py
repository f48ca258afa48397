"""A root as a list: what, when, from what; one line each, the newest last, with names below the root."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter
from rich.cells import cell_len

import offline_core as offline
from flows.cli import app
from offline_core.data.store.json_files import line_of
from offline_core.errors import ConfigError, StorageError
from offline_core.keeping.homepage.listing import LISTED_KINDS, MOST_TOLD, Listed, RootListing, lines_of, list_root, shortened
from tests.data.datasets.factories import episode, write_dataset


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, cartpole_policy: str) -> Path:
    """Two versions of a recording, one of them tagged and checked, a training, outliers, a loose policy and its evaluation."""
    runs = tmp_path_factory.mktemp("roots") / "runs"
    for episodes in (20, 30):
        write_dataset(runs / "recording", [episode(i, 30) for i in range(episodes)], "table")
    offline.tag(runs / "recording", "audited", version=1)
    offline.check(runs / "recording")
    offline.train(runs / "recording", algorithm="bc", optimizer={"max_epochs": 1}, output=runs / "clones" / "bc")
    offline.outliers(runs / "recording", output=runs / "outliers")
    shutil.copytree(cartpole_policy, runs / "untrained", ignore=shutil.ignore_patterns("_*"))  # other tests evaluate it
    offline.evaluate(runs / "untrained", episodes=3)
    going_on = runs / "going on"
    going_on.mkdir()
    (going_on / "metrics.jsonl").write_bytes(line_of({"updates": 3, "loss": 1.5}))
    return runs


def test_all_that_is_below_a_root_is_listed_with_what_it_was_made_from(root: Path) -> None:
    found = {(each.kind, each.name): each for each in list_root(str(root)).entries}
    assert found.keys() == {
        ("dataset", "recording@1"),
        ("dataset", "recording@2"),
        ("training", "clones/bc"),
        ("training", "going on"),
        ("outlier ranking", "outliers"),
        ("policy", "untrained"),
        ("evaluation", "untrained"),
    }
    first, second = found["dataset", "recording@1"], found["dataset", "recording@2"]
    assert first.tags == ("audited",) and first.what.startswith("20 episodes, ") and second.what.startswith("30 episodes, ")
    assert ", check: " in second.what and second.tags == ()
    training = found["training", "clones/bc"]
    assert (training.source, training.policy) == ("recording@2", "clones/bc/best")
    assert training.what.startswith("bc") and found["training", "going on"].what.startswith("not done")
    assert found["evaluation", "untrained"].what.endswith("over 3 episodes of CartPole-v1")
    assert found["outlier ranking", "outliers"].source == "recording@2"


def test_what_was_measured_of_a_policy_that_was_replaced_is_said_to_be_of_another(root: Path, tmp_path: Path) -> None:
    """The last policy is listed beside the best one once something was measured of it."""
    for name in ("best", "last"):
        shutil.copytree(root / "untrained", tmp_path / "run" / name)
    shutil.copytree(root / "clones" / "bc" / "last", tmp_path / "run" / "last", dirs_exist_ok=True)
    found = {(each.kind, each.name): each for each in list_root(str(tmp_path)).entries}
    replaced, kept = found["evaluation", "run/last"], found["evaluation", "run/best"]
    assert replaced.what == f"of a policy that was replaced since: {kept.what}"
    assert (replaced.policy, kept.policy) == (None, "run/best") and ("policy", "run/last") in found


def test_the_newest_comes_last(root: Path) -> None:
    times = [each.made for each in list_root(str(root)).entries]
    assert None not in times and times == sorted(each for each in times if each is not None)


def test_a_root_that_is_not_there_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    assert list_root(str(tmp_path)).entries == []
    with pytest.raises(StorageError, match="There is no folder"):
        list_root(str(tmp_path / "nowhere"))
    assert "There is nothing of this pipeline below" in CliRunner().invoke(app, ["ls", str(tmp_path)]).output


def test_what_cannot_be_read_is_told_and_the_rest_is_listed(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "runs")
    (tmp_path / "runs" / "recording" / "_versions" / "000001.json").write_text("{")
    listing = list_root(str(tmp_path / "runs"))
    assert [file for file, _ in listing.problems] == ["recording/_versions/000001.json"]
    assert "recording@2" in {each.name for each in listing.entries}
    done = CliRunner().invoke(app, ["ls", str(tmp_path / "runs")])
    assert "recording/_versions/000001.json is not listed: It is not what this package writes" in done.stderr


def test_the_verb_prints_a_line_for_each_and_the_same_as_json(root: Path) -> None:
    lines = CliRunner().invoke(app, ["ls", str(root)]).stdout.splitlines()
    assert len(lines) == 8 and lines[0].split() == ["when", "(UTC)", "kind", "name", "what", "from"]
    assert [line for line in lines if " recording@1 @audited " in line]
    values = json.loads(CliRunner().invoke(app, ["ls", str(root), "--json"]).stdout)
    assert TypeAdapter(list[Listed]).validate_python(values["entries"]) == list_root(str(root)).entries


def test_python_lists_what_the_verb_prints_and_a_kind_alone(root: Path) -> None:
    listing = offline.list(root)
    assert f"{listing}\n" == f"{listing!r}\n" == CliRunner().invoke(app, ["ls", str(root)]).stdout
    assert len(listing) == 7 and [*listing] == listing.entries and listing[-1] == listing.entries[-1]
    html = listing._repr_html_()
    assert "recording@1 @audited" in html and "going on" in html
    trainings = offline.list(root, kind="training")
    assert {each.name for each in trainings} == {"clones/bc", "going on"}
    assert f"{trainings}\n" == CliRunner().invoke(app, ["ls", str(root), "--kind", "training"]).stdout
    assert {each.kind for each in listing} <= {*LISTED_KINDS}
    with pytest.raises(ConfigError, match="Nothing is of the kind 'policies'; kinds are dataset, policy, alias, "):
        offline.list(root, kind="policies")


def test_a_narrow_terminal_cuts_what_and_from_and_wide_letters_take_two_cells() -> None:
    rows = [
        ("when", "kind", "name", "what", "from"),
        ("2026", "dataset", "数据", "w" * 30, "f" * 30),
        ("2026", "x", "y", "ü", "z"),
    ]
    lines = [*lines_of(rows, 50)]
    assert all(cell_len(line) <= 50 for line in lines)
    assert lines[1].endswith("…") and lines[0].index("what") == lines[2].index("ü")
    whole = [*lines_of(rows, None)]
    assert whole[1].endswith("f" * 30) and "w" * 30 in whole[1]


def test_long_texts_end_at_a_word_and_others_stay() -> None:
    text = "refused: this log cannot tell. " + "Of marwil: 2.3 effective episodes are left, and 10 are needed. " * 7
    cut = shortened(text)
    assert 60 < len(cut) <= MOST_TOLD and cut.endswith("…") and text.startswith(cut[:-1]) and not text[len(cut) - 1].isalnum()
    assert shortened(text[:MOST_TOLD]) == text[:MOST_TOLD] and shortened("x" * 100) == "x" * (MOST_TOLD - 1) + "…"


def test_a_row_of_a_list_is_short_and_its_entry_has_all() -> None:
    entry = Listed(kind="decision", name="decision", made=None, what="word " * 90, source="log")
    listing = RootListing(root="runs", entries=[entry])
    assert max(map(len, listing.table().splitlines())) < 130 and listing[0].what == "word " * 90


def test_names_do_not_steer_the_terminal(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", [episode(0)])
    (tmp_path / "data").rename(tmp_path / "a\x1b[31mb\u202ec")
    shown = CliRunner().invoke(app, ["ls", str(tmp_path)]).stdout
    assert r"a\x1b[31mb\u202ec@1" in shown and "\x1b" not in shown and "\u202e" not in shown
