"""What the numbers of a step are called: by the mapping where there is one, else by index from 0."""

from __future__ import annotations

import pytest

from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names
from offline_core.data.inputs.row_steps import RowSteps


@pytest.mark.parametrize(
    ("path", "count", "names"),
    [
        ("obs", 3, ["obs[0]", "obs[1]", "obs[2]"]),
        ("obs/angle", 2, ["obs/angle[0]", "obs/angle[1]"]),
        ("rewards", 1, ["rewards"]),
    ],
)
def test_without_a_mapping_they_are_counted_from_0(path: str, count: int, names: list[str]) -> None:
    assert number_names(path, count) == names


@pytest.mark.parametrize(
    ("obs", "encode", "names"),
    [
        (["sensors.tin", "sensors.tout"], {}, ["sensors.tin", "sensors.tout"]),
        (["tin"], {}, ["tin"]),
        (
            ["tin", "mode"],
            {"mode": Encoding(categories=["heat", "off"], other=True)},
            ["tin", "mode = heat", "mode = off", "other mode"],
        ),
        (["tin", "mode"], {"mode": Encoding(categories=["heat", "off"], form="index")}, ["tin", "mode"]),
    ],
)
def test_mapped_numbers_have_the_names_of_their_columns(obs: list[str], encode: dict[str, Encoding], names: list[str]) -> None:
    made_of = InputColumns(steps=RowSteps(encode=encode), obs=obs)
    assert number_names("obs", len(names), made_of) == names
    assert number_names("actions", 2, made_of) == ["actions[0]", "actions[1]"]


def test_the_numbers_of_the_only_vector_are_counted() -> None:
    assert number_names("obs", 2, InputColumns(steps=RowSteps(), obs=["tin"])) == ["tin[0]", "tin[1]"]


@pytest.mark.parametrize("obs", [["tin", "tin"], ["tin", "rewards"]])
def test_names_that_do_not_fit_or_name_two_things_are_not_used(obs: list[str]) -> None:
    """A column that is mapped twice, one that has the name of another column of steps."""
    assert number_names("obs", 2, InputColumns(steps=RowSteps(), obs=obs)) == ["obs[0]", "obs[1]"]
