"""`OFFLINE_ROOTS`: which locations may be named, whatever the name looks like."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.opening import data_files
from offline_core.data.store.allowed_roots import VARIABLE, IsUri
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, LocationError
from offline_core.plans.permission import LOCATIONS
from offline_core.runtime.config import Config
from tests.deployments.flows import FLOWS, FORMS


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `runs`, which is allowed as a bucket's `team` is, and folders that are not."""
    for name in ("runs", "runs-of-others", "secret", "data/RUNS"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs/link").symlink_to(tmp_path / "secret")
    (tmp_path / "alias").symlink_to(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "runs; s3://bucket/team/*;hdfs:///team")
    return tmp_path


@pytest.mark.parametrize(
    "uri",
    [
        "runs",
        "runs/",
        "./runs/a",
        "runs//a",
        "runs/a/../b",
        "secret/../runs/a",
        "alias/a",
        "runs/**/*.parquet",
        "s3://bucket/team",
        "s3://bucket/team/",
        "S3://bucket//team//a",
        "s3://bucket/team/*.csv",
        "hdfs:///team/a",
        "hdfs:/team/a",
    ],
)
def test_what_is_below_a_root_is_allowed(uri: str, roots: Path) -> None:
    Location.of(uri)


@pytest.mark.parametrize(
    "uri",
    [
        ".",
        "secret",
        "runs-of-others",
        "runs/../secret",
        "runs/link/a",
        "runs/a/../../secret",
        "RUNS",
        "/etc/passwd",
        "//etc/passwd",
        "~/.ssh",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "file://localhost/etc",
        "s3:/bucket/team/a",
        "s3://bucket",
        "s3://bucket/teams",
        "s3://bucket/TEAM/a",
        "s3://Bucket/team/a",
        "s3://bucket/te%61m/a",
        "s3://bucket/team/../a",
        "s3://bucket/team/./../a",
        "s3://other/team/a",
        "gs://bucket/team/a",
        "hdfs://team/a",
        "hdfs://namenode/team/a",
    ],
)
def test_all_else_is_refused(uri: str, roots: Path) -> None:
    with pytest.raises(LocationError):
        Location.of(uri)


def test_percents_of_a_file_uri_are_decoded_before_they_are_compared(roots: Path) -> None:
    assert Location.of(f"file://{roots}/runs/a%20b").path == f"{roots}/runs/a b"
    with pytest.raises(LocationError):
        Location.of(f"file://{roots}/runs/%2e%2e/secret")


@pytest.mark.parametrize("pattern", ["runs", "runs/*", "runs/*/x.csv", "runs/**/*.csv", "runs/only/*.csv"])
def test_links_that_a_folder_or_a_pattern_leads_to_are_refused(pattern: str, roots: Path) -> None:
    (roots / "runs/only").mkdir()
    (roots / "secret/x.csv").write_text("a\n1\n")
    (roots / "runs/only/x.csv").symlink_to(roots / "secret/x.csv")
    with pytest.raises(LocationError, match="is not below a location that OFFLINE_ROOTS allows"):
        data_files(Location.of(pattern), "csv", Listing())


def test_the_error_names_what_is_allowed(roots: Path) -> None:
    with pytest.raises(LocationError) as refused:
        Location.of("secret/data")
    told = f"{roots}/secret/data is not below a location that OFFLINE_ROOTS allows here: {roots}/runs, s3://bucket/team, "
    assert str(refused.value).startswith(told)


def test_unset_or_empty_means_everything(roots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", " "):
        monkeypatch.setenv(VARIABLE, text)
        Location.of("/etc")


@pytest.mark.parametrize("text", [";", "*", "runs*", "runs/*/x", "ftp://host/x", "s3://"])
def test_roots_that_are_no_folders_are_refused(text: str, roots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigError, match="OFFLINE_ROOTS"):
        Location.of("runs")


TEXTS = (str, str | None, str | list[str], dict[str, float])
NO_LOCATIONS = {
    "accelerator_type",
    "after",
    "alias",
    "asof",
    "before",
    "by",
    "expression",
    "format",
    "id",
    "module",
    "name",
    "of",
    "resources",
    "runs_url",
    "time_format",
    "time_zone",
    "unit",
    "where",
    "where_steps",
}

OUTSIDE = "/outside/x"
NAMED = [
    ("record", {"export": {"format": "minari", "output": OUTSIDE}}),
    ("import-data", {"source": ["runs/a", OUTSIDE]}),
    ("import-data", {"source": OUTSIDE}),
    ("import-data", {"source": OUTSIDE, "config": {"source": {"format": "package.module:Reader"}}}),
    (
        "import-data",
        {"source": "runs/a", "config": {"columns": {"joins": [{"source": OUTSIDE, "on": ["a"], "columns": ["b"]}]}}},
    ),
    ("prune", {"config": {"outliers": OUTSIDE}}),
    ("mix", {"config": {"datasets": {OUTSIDE: 1.0}}}),
    ("mix", {"config": {"policies": {OUTSIDE: 1.0}}}),
    ("mix-short", {"policies": {OUTSIDE: 1.0}}),
    ("decide-short", {"against": f"{OUTSIDE}@champion"}),
    ("check", {"config": {"held_out": OUTSIDE}}),
    ("train-expert", {"config": {"initial_policy": OUTSIDE}}),
    ("train", {"config": {"initial_policy": OUTSIDE}}),
    ("train", {"config": {"evaluation": {"held_out": OUTSIDE}}}),
    ("estimate", {"config": {"behaviour": OUTSIDE}}),
    ("decide", {"config": {"against": f"{OUTSIDE}@champion"}}),
    ("sweep", {"config": {"estimate_on": OUTSIDE}}),
    ("sweep", {"config": {"training": {"initial_policy": OUTSIDE}}}),
    ("improve-policy", {"source": "runs/a", "registry": OUTSIDE}),
    ("logs-to-policy", {"source": "runs/a", "root": OUTSIDE}),
    ("logs-to-policy", {"source": "runs/a", "estimate": {"behaviour": OUTSIDE}}),
    ("logs-to-policy", {"source": "runs/a", "estimate": f"behaviour: {OUTSIDE}"}),
    *(
        (flow.fn.__name__.replace("_", "-"), {name: [OUTSIDE] if hint == list[str] else OUTSIDE})
        for flow in FLOWS
        for name, hint in typing.get_type_hints(flow.fn).items()
        if name in LOCATIONS and hint in (str, list[str], str | list[str])
    ),
]


@pytest.mark.parametrize(("flow", "parameters"), NAMED, ids=[f"{flow} {given}" for flow, given in NAMED])
def test_flows_refuse_before_they_begin(flow: str, parameters: dict[str, Any], roots: Path) -> None:
    """Prefect validates a run's parameters before it calls the flow, whoever started it."""
    chosen = next(each for each in FORMS if each.fn.__name__.replace("_", "-") == flow)
    inside = {"source": "runs/a"} if "source" in chosen.parameters.properties else {}
    chosen.validate_parameters(inside)
    with pytest.raises(LocationError, match=r"/outside/x.* is not below .*/runs, s3://bucket/team"):
        chosen.validate_parameters(inside | parameters)


def test_each_text_of_a_config_is_a_location_or_is_known_not_to_be_one() -> None:
    """A new text has to be marked, or named here."""
    texts = {
        name
        for model in models()
        for name, field in model.model_fields.items()
        if field.annotation in TEXTS and not any(isinstance(each, IsUri) for each in field.metadata)
    }
    assert texts == NO_LOCATIONS, f"mark with IS_URI, or add to NO_LOCATIONS: {texts ^ NO_LOCATIONS}"


def models() -> set[type[BaseModel]]:
    """Every model that a parameter of a flow may be, or may hold."""
    found: set[type[BaseModel]] = set()

    def look(hint: Any) -> None:
        if isinstance(hint, type) and issubclass(hint, BaseModel) and hint not in found:
            found.add(hint)
            for field in hint.model_fields.values():
                look(field.annotation)
        for each in typing.get_args(hint):
            look(each)

    for flow in FLOWS:
        for hint in typing.get_type_hints(flow.fn).values():
            look(hint)
    return {each for each in found if issubclass(each, Config)}
