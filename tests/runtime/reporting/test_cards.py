"""Cards: Markdown that shows every number, and the picture with it."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from offline_core.runtime.reporting.card import Card, Headline, Ran, Section
from offline_core.runtime.reporting.cards import (
    chain_card,
    episodes_card,
    expert_card,
    quality_card,
    returns_rows,
    sweep_card,
    training_card,
)

METRICS = {
    "episode_return_mean": 123.44,
    "episode_return_std": 5.25,
    "episode_return_min": -1.0,
    "episode_return_max": 500.0,
    "episode_length_mean": 77.7,
    "episodes": 20.0,
}


def cells(card: Card) -> list[list[str]]:
    """The table as a Markdown reader sees it: rows of cells, split at bars that are not escaped."""
    lines = card.markdown().splitlines()
    table = lines[lines.index("|---|---|") + 1 :]
    rows = [line for line in table if line.startswith("|")]
    return [[unescaped(cell.strip()) for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def unescaped(text: str) -> str:
    return re.sub(r"\\([^\w\s])|\\(_)", r"\1\2", text)


def size_of(picture: bytes | None) -> tuple[int, int]:
    assert picture is not None
    with Image.open(io.BytesIO(picture)) as image:
        image.load()
        return image.size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (False, "no"),
        (1234567, "1,234,567"),
        (-3, "-3"),
        (1234.56, "1,234.6"),
        (np.float64(0.25), "0.25"),
        (0.0, "0"),
        (0.000123456, "0.000123"),
        (2.5e7, "2.5e+07"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (None, "None"),
        ("s3://bucket/run version 3", "s3://bucket/run version 3"),
        ("return > 3 | length < 2", "return > 3 | length < 2"),
        ("one\ntwo\r\n three", "one two three"),
        ("`a` *b* _c_ __d__ snake_case", "`a` *b* _c_ __d__ snake_case"),
        (
            "![x](http://example.org/x.png) <img src=x> &amp; $y$ ~z~ \\|",
            "![x](http://example.org/x.png) <img src=x> &amp; $y$ ~z~ \\|",
        ),
        ("größe–“quoted” 'x' 🎲", "größe–“quoted” 'x' 🎲"),
    ],
)
def test_a_value_reads_well_and_stays_in_its_cell(value: object, text: str) -> None:
    assert cells(Card("Title", {"First": "a", "Name": value, "Last": "z"})) == [["First", "a"], ["Name", text], ["Last", "z"]]


def test_the_picture_is_inside_the_text() -> None:
    card = expert_card(rows={"Seconds": 3.0}, curve=[(0, 1.0), (1, 2.0)], target=None)
    assert card.markdown().startswith("# Expert\n")
    found = re.search(r"!\[Expert\]\(data:image/png;base64,([^)]+)\)", card.markdown())
    assert found is not None
    assert base64.b64decode(found[1]) == card.picture
    assert size_of(card.picture) == (450, 300)


RAN = Ran("prune", {"where": "return >= 3", "files": {"rows": 5}}, {"python": "3.11", "git": "abc+dirty"})
LINEAGE = 'flowchart LR\n  n0["pruned"]\n'


def blocks(text: str) -> dict[str, str]:
    """Fenced blocks by language, as CommonMark finds them: a fence ends at one of the same length or longer."""
    found = re.findall(r"^(`{3,})(\w+)\n(.*?)\n\1$", text, flags=re.M | re.S)
    return {language: content for _, language, content in found}


def test_a_card_says_what_ran_on_what() -> None:
    text = Card("Pruning", {"Kept": 3}, ran=RAN, lineage=LINEAGE).markdown()
    found = blocks(text)
    assert yaml.safe_load(found["yaml"]) == {"prune": {"where": "return >= 3", "files": {"rows": 5}}}
    assert found["mermaid"] == LINEAGE.rstrip()
    assert "python 3.11, git abc+dirty" in text


def test_without_changed_parameters_a_card_says_that() -> None:
    found = blocks(Card("Pruning", {}, ran=Ran("prune")).markdown())
    assert found["yaml"] == "prune:  # all parameters at their defaults"
    assert yaml.safe_load(found["yaml"]) == {"prune": None}


@pytest.mark.parametrize("hostile", ["```\n# out", "````", "a|b", "'\"", "üñí 🎲\u2028", "- x: y\n#z", "`", "\\n"])
def test_no_parameter_leaves_its_block(hostile: str) -> None:
    card = Card(hostile, {hostile: hostile}, ran=Ran("op", {"where": hostile, hostile: [hostile]}), lineage=LINEAGE)
    found = blocks(card.markdown())
    assert yaml.safe_load(found["yaml"]) == {"op": {"where": hostile, hostile: [hostile]}}
    assert found["mermaid"] == LINEAGE.rstrip()
    assert [len(row) for row in cells(card)] == [2]


def test_the_files_of_a_card_belong_together() -> None:
    card = expert_card(rows={"Seconds": 3.0}, curve=[(0, 1.0), (1, 2.0)], target=None)
    files = card.files("000003")
    assert list(files) == ["000003.png", "000003.html", "000003.md"], "what refers to the other comes last"
    assert files["000003.png"] == card.picture
    assert b"![Expert](000003.png)" in files["000003.md"] and b"base64" not in files["000003.md"]
    assert list(Card("No picture", {}).files("card")) == ["card.html", "card.md"]


def test_every_card_is_a_page_that_holds_all_it_shows() -> None:
    card = expert_card(rows={"Steps": 1234567, "Name": "<b>&amp;"}, curve=[(0, 1.0), (1, 2.0)], target=None)
    page = dataclasses.replace(card, ran=RAN, lineage=LINEAGE, ancestors=[(0, "policy"), (1, "data <i>")]).html()
    for part in (
        "<td>1,234,567</td>",
        "<td>&lt;b&gt;&amp;amp;</td>",
        "← data &lt;i&gt;",
        "where: return &gt;= 3",
        "python 3.11",
    ):
        assert part in page
    assert card.picture is not None and base64.b64encode(card.picture).decode() in page
    assert "<img" not in Card("No picture", {}).html() and "flowchart" not in page, "Mermaid needs a script"


def test_sections_follow_the_picture_and_empty_ones_are_left_out() -> None:
    sections = [
        Section("Empty"),
        Section("Told", ["# a", "1. b", "- c"]),
        Section("Counted", columns=["n", "m"], rows=[[1, ""]]),
    ]
    card = Card("Title", {"a": 1}, headline=Headline("keep", "As it *is*.", "neutral"), sections=sections)
    text = card.markdown()
    assert text.startswith("# Title\n\n⚪ **keep** As it \\*is\\*.\n\n| | |\n|---|---|\n| a | 1 |\n")
    assert text.endswith("## Told\n\n- \\# a\n- 1\\. b\n- \\- c\n\n## Counted\n\n| n | m |\n|---|---|\n| 1 |  |\n")
    page = card.html()
    assert "Empty" not in page and "<li># a</li>" in page and '<th scope="col">m</th>' in page


def test_a_training_shows_weights_only_if_it_has_some() -> None:
    line = [(1, 0.5), (2, 0.25)]
    four, three = training(line), training(line, effective_sample_size=[])
    assert size_of(four.picture) == size_of(three.picture) == (900, 600)
    assert four.picture != three.picture


def test_rows_about_returns() -> None:
    rows = returns_rows(METRICS)
    assert rows["Return"] == "123.4 ± 5.2 (greedy actions, standard deviation of 20 episodes)"
    assert cells(Card("x", rows))[1:] == [["Lowest and highest return", "-1.0 and 500.0"], ["Steps per episode", "77.7"]]
    assert "so few say little" in str(returns_rows(METRICS | {"episodes": 19})["Return"])
    assert "sampled actions" in str(returns_rows(METRICS, actions="sampled")["Return"])
    assert returns_rows(METRICS | {"success_rate": 0.125})["Success rate"] == "12.5%"


def test_rows_about_a_policy_that_never_played_say_so() -> None:
    assert list(returns_rows({})) == ["Return"]
    assert "never played" in str(returns_rows({})["Return"])
    assert returns_rows({"held_out_loss": 0.25})["Held-out loss"] == 0.25


DONE = Headline("Done", "All.", "good")
NOTHING: list[Any] = []
ONE = [(3, 4.5)]
STRANGE = [(1, math.nan), (2, math.inf), (3, -math.inf), (4, 1.0)]


def named(data: Any) -> dict[str, float]:
    return {str(x): y for x, y in data}


def test_a_single_point_is_a_number_and_no_picture() -> None:
    assert expert_card(rows={}, curve=ONE, target=1.0).picture is None
    assert size_of(training(ONE).picture) == (450, 300), "the seconds"


def test_histograms_that_are_the_same_are_one() -> None:
    of = {"played": ([3.0, 4.0], [3.0, 4.0])}
    assert size_of(episodes_card("x", rows={}, episodes=lambda: of).picture) == (450, 300)
    bins = ([0.0, 1.0], [2])
    assert size_of(quality_card(rows={}, findings=[], returns=bins, lengths=bins).picture) == (450, 300)


def training(data: Any, **changes: Any) -> Card:
    given = {"losses": data, "held_out": data, "curve": data, "target": 475.0, "effective_sample_size": data}
    return training_card(rows={"a": 1}, seconds=named(data), **(given | changes))


@pytest.mark.parametrize(
    ("make", "width"),
    [
        (lambda data: expert_card(rows={"a": 1}, curve=[(0, 0.0), *data, (9, 1.0)], target=475.0), 450),
        (lambda data: training([(0, 0.0), *data, (9, 1.0)]), 900),
        (lambda data: episodes_card("x", rows={"a": 1}, episodes=lambda: {"r": ([y for _, y in data], [1])}), 900),
        (lambda data: chain_card("Chain", rows={"a": 1}, seconds=named(data), returns=named(data), headline=DONE), 900),
    ],
    ids=["expert", "training", "episodes", "chain"],
)
@pytest.mark.parametrize("data", [NOTHING, ONE, STRANGE], ids=["nothing", "one point", "NaN and infinity"])
def test_every_card_can_be_made_of_anything(make: Callable[[Any], Card], width: int, data: Any) -> None:
    card = make(data)
    assert cells(card) == [["a", "1"]]
    assert size_of(card.picture)[0] == width


def test_a_quality_card_says_what_each_rule_found_the_worst_first() -> None:
    findings = [
        ("step_order", "pass", "0 of 9 steps do not follow the step before them."),
        ("open_episodes", "warn", "1 of 2 episodes neither terminate nor are truncated."),
        ("bounds", "not applicable", "No space has bounds."),
        ("non_finite", "fail", "3 of 9 steps hold NaN; obs|x: 3."),
    ]
    card = quality_card(rows={"Verdict": "fail"}, findings=findings, returns=([0.0, 1.0], [2]), lengths=([], []))
    assert card.sections[0].rows == [
        ("🔴 fail", "non_finite", "3 of 9 steps hold NaN; obs|x: 3."),
        ("🟠 warn", "open_episodes", "1 of 2 episodes neither terminate nor are truncated."),
        ("⚪ not applicable", "bounds", "No space has bounds."),
        ("🟢 pass", "step_order", "0 of 9 steps do not follow the step before them."),
    ]
    assert size_of(card.picture) == (900, 300)


def test_another_curve_is_another_picture() -> None:
    one, same, other = (expert_card(rows={}, curve=[(0, 1.0), (1, y)], target=None).picture for y in (2.0, 2.0, -5.0))
    assert one == same != other


def test_a_sweep_is_four_pictures_of_its_settings_by_rank() -> None:
    card = sweep_card(
        rows={"1. algorithm=bc": "250 (240 to 260)"},
        score="last return",
        scores={"1": (250.0, 240.0, 260.0), "2": (math.nan, 0.0, 1.0)},
        curves={"1": [(4, 1.0, 0.5, 1.5)], "2": []},
        profiles={"1": [(240.0, 1.0), (260.0, 0.0)]},
        expected_best={"bc": [250.0, 255.0]},
    )
    assert cells(card) == [["1. algorithm=bc", "250 (240 to 260)"]]
    assert size_of(card.picture) == (900, 600)
