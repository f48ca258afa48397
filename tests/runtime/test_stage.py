"""The form of a stage: it looks, says what it will make, and works only if the same was not made before."""

from __future__ import annotations

import json
import logging
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offline_core.data.datasets.result_cache import RESULT_FILE, StoredResult, StoredValues, _in_words
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.runtime.config import Config
from offline_core.runtime.result import Result
from offline_core.runtime.stage import STAGES, Argument, Made, Stage, output, stage


class DoublingConfig(Config):
    """What to double."""

    number: int = 1
    how_fast: int = 1


class Doubled(Result):
    """Twice the number."""

    number: int
    file: str


WORKED: list[int] = []


@pytest.fixture(autouse=True)
def worked() -> Iterator[list[int]]:
    WORKED.clear()
    yield WORKED


@stage("double", version=2, arguments=(output("runs/doubled", "Folder of the number."),))
def double(config: DoublingConfig, *, output: str) -> Made[Doubled]:
    """Double a number.

    That is all.
    """
    if config.number < 0:
        raise ConfigError("The number is negative.")
    folder = Location.of(output)

    def text(uri: str) -> str | None:
        place = Location.of(uri)
        return place.read().decode() if place.is_file() else None

    begun = yield StoredResult(
        Doubled, folder, [], text, outputs=lambda result: [result.file], config=config, exclude={"how_fast"}
    )
    WORKED.append(config.number)
    if config.number > 1_000:
        raise ConfigError("The number is too large.")
    file = begun.folder.child("number.txt")
    file.write(str(2 * config.number).encode())
    return Doubled(number=2 * config.number, file=file.uri)


def test_a_stage_works_once_for_what_decides_its_result(tmp_path: Path, worked: list[int]) -> None:
    first = double(DoublingConfig(number=3), output=str(tmp_path))
    again = double(DoublingConfig(number=3, how_fast=9), output=str(tmp_path))
    assert (first.number, first.reused, again.number, again.reused, worked) == (6, False, 6, True, [3])
    assert double(DoublingConfig(number=4), output=str(tmp_path)).number == 8 and worked == [3, 4]


def test_a_result_without_its_output_is_made_again(tmp_path: Path, worked: list[int]) -> None:
    Path(double(DoublingConfig(), output=str(tmp_path)).file).unlink()
    assert not double(DoublingConfig(), output=str(tmp_path)).reused and worked == [1, 1]
    (tmp_path / "number.txt").write_text("something else")
    assert not double(DoublingConfig(), output=str(tmp_path)).reused and worked == [1, 1, 1]


def _near(now: datetime) -> Callable[[re.Match[str]], str]:
    """Write "then" for a minute of at most five before."""
    return lambda minute: (
        "then" if timedelta(0) <= now - datetime.fromisoformat(f"{minute[0]}+00:00") < timedelta(minutes=5) else "?"
    )


def test_a_result_that_is_replaced_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    double(DoublingConfig(), output=str(tmp_path / "here"))
    double(DoublingConfig(number=2), output=str(tmp_path / "here"))
    shutil.copytree(tmp_path / "here", tmp_path / "copy")
    double(DoublingConfig(number=2), output=str(tmp_path / "copy"))
    now = datetime.now(UTC)
    said = [
        (record.levelname, re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", _near(now), record.message))
        for record in caplog.records
        if "result_cache" in record.name
    ]
    here, copy = (tmp_path / name / RESULT_FILE for name in ("here", "copy"))
    assert said == [
        ("INFO", f"{here.parent} holds the result of other settings, data, or code, which is to be replaced: made then UTC."),
        ("WARNING", f"The result at {copy} was made at {here}, and its copy is not used: it is made again."),
    ]


def test_no_result_is_there_while_its_output_is_replaced(tmp_path: Path) -> None:
    double(DoublingConfig(), output=str(tmp_path))
    (tmp_path / "number.txt").unlink()
    (tmp_path / "number.txt").mkdir()  # so that the work fails
    with pytest.raises(Exception, match=r"number\.txt"):
        double(DoublingConfig(number=5), output=str(tmp_path))
    assert not (tmp_path / RESULT_FILE).exists()


def test_the_result_of_before_comes_back_if_the_work_fails_and_left_its_output(tmp_path: Path) -> None:
    first = double(DoublingConfig(), output=str(tmp_path))
    (tmp_path / "card.md").write_text("two")
    held = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    with pytest.raises(ConfigError, match="too large"):
        double(DoublingConfig(number=1_001), output=str(tmp_path))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == held
    assert double(DoublingConfig(), output=str(tmp_path)) == first.model_copy(update={"reused": True})


def test_a_result_whose_outputs_are_elsewhere_stays_until_another_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    @stage("look", arguments=(output("runs/look", "Folder."),))
    def look(config: DoublingConfig, *, output: str) -> Made[Doubled]:
        """Look, and write nothing."""
        yield StoredResult(Doubled, Location.of(output), [], lambda _: "", outputs=lambda _: ["elsewhere"], config=config)
        seen.append((tmp_path / RESULT_FILE).exists())
        return Doubled(number=config.number, file="")

    for number in (1, 2):
        look(DoublingConfig(number=number), output=str(tmp_path))
        (tmp_path / "card.md").write_text(str(number))
    assert seen == [False, True]
    assert look(DoublingConfig(number=3), output=str(tmp_path)).number == 3 and not (tmp_path / "card.md").exists()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    held = (tmp_path / RESULT_FILE).read_bytes()
    monkeypatch.setattr("offline_core.data.datasets.result_cache.store_result", full)
    with pytest.raises(OSError, match="No space"):
        look(DoublingConfig(number=4), output=str(tmp_path))
    assert (tmp_path / RESULT_FILE).read_bytes() == held


def test_what_it_refuses_is_said_before_it_works(tmp_path: Path, worked: list[int]) -> None:
    for call in (double, double.known):
        with pytest.raises(ConfigError, match="negative"):
            call(DoublingConfig(number=-1), output=str(tmp_path / "out"))
    assert worked == [] and not (tmp_path / "out").exists()


def test_what_is_known_is_found_without_work(tmp_path: Path, worked: list[int]) -> None:
    assert double.known(DoublingConfig(), output=str(tmp_path)) is None
    double(DoublingConfig(), output=str(tmp_path))
    known = double.known(DoublingConfig(), output=str(tmp_path))
    assert known is not None and known.reused and worked == [1]


def test_a_stage_says_itself() -> None:
    assert (double.name, double.version, double.summary) == ("double", 2, "Double a number.")
    assert double.config.endswith("test_stage:DoublingConfig") and double.function.endswith("test_stage:double")
    told = double.as_json()
    assert json.loads(json.dumps(told)) == told and told["arguments"][0]["default"] == "runs/doubled"


def test_a_stage_that_yields_twice_is_a_bug(tmp_path: Path) -> None:
    @stage("twice", arguments=())
    def twice(config: DoublingConfig) -> Made[Doubled]:
        """Yield twice."""
        for _ in range(2):
            yield StoredResult(Doubled, Location.of(str(tmp_path)), [], lambda _: "", outputs=lambda _: [], config=config)
        return Doubled(number=0, file="")

    with pytest.raises(RuntimeError, match="yields once"):
        twice(DoublingConfig())


def test_all_stages_are_listed_in_order() -> None:
    order = ["train_expert", "record", "import", "check", "prune", "train", "evaluate", "decide", "promote"]
    assert [name for name in STAGES if name in order] == order


def test_a_stage_travels_as_its_name() -> None:
    there: Stage = pickle.loads(pickle.dumps(STAGES["prune"]))
    assert there.name == "prune" and there.work is not None


def test_arguments_say_what_they_are() -> None:
    assert Argument("datasets", "", [], "datasets").is_many and not Argument("version", "", kind="version").is_place
    assert [each.name for each in STAGES["decide"].inputs] == ["dataset", "candidates"]


def test_warnings_of_a_stage_inside_another_are_told_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Warned(Result):
        """A result that warns."""

        warnings: tuple[str, ...] = ("careful",)

    @stage("inner", arguments=())
    def inner(config: DoublingConfig) -> Warned:
        """Warn."""
        return Warned()

    @stage("outer", arguments=())
    def outer(config: DoublingConfig) -> Warned:
        """Call a stage that warns."""
        return inner(config)

    outer(DoublingConfig())
    name = "offline_core.runtime.stage"
    assert [record.name for record in caplog.records if record.message == "careful"] == [f"{name}.inner", name]


def test_a_training_that_is_replaced_is_named_by_its_algorithm(tmp_path: Path) -> None:
    file = Location.of(str(tmp_path / "result.json"))
    assert _in_words(file, StoredValues("", "", {}, {"algorithm": "bc"})) == "bc, made before"
    file.write(b"{}")
    assert _in_words(file, StoredValues("", "", {}, {"algorithm": "bc"})).startswith("bc, made 20")
    assert _in_words(file, StoredValues("", "", {}, {})).startswith("made 20")
