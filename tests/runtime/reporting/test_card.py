"""One card, shown as Markdown, HTML, in a notebook and on a terminal: every number is there, and names stay names."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
import re
from functools import partial

import numpy as np
import pytest
import yaml
from PIL import Image

from offline_core.errors import StorageError
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, Mark, Ran, Section, command
from offline_core.runtime.reporting.figures import Drawing


def cells(card: Card) -> list[list[str]]:
    """The table as a Markdown reader sees it: rows of cells, split at bars that are not escaped."""
    lines = card.markdown().splitlines()
    table = lines[lines.index("|---|---|") + 1 :]
    rows = [line for line in table if line.startswith("|")]
    return [[unescaped(cell.strip()) for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def unescaped(text: str) -> str:
    return re.sub(r"\\([^\w\s])|\\(_)", r"\1\2", text)


def size_of(picture: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(picture)) as image:
        image.load()
        return image.size


def drawn(count: int = 1, y: float = 2.0) -> Card:
    """A card with so many pictures."""
    curve = partial(figures.curve, points=[(0, 1.0), (1, y)], x="x", y="y")
    return Card("Expert", {"Seconds": 3.0}, draw=figures.drawn(lambda: [curve] * count))


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


def test_a_good_verdict_with_warnings_is_a_fair_one() -> None:
    good = {"verdict": "good", "word": "Done"}
    assert (Card("x", **good).verdict, Card("x", **good).word) == ("good", "Done")  # type: ignore[arg-type]
    assert Card("x", **good, notes=["a"]).verdict == "good" and "- Note: a" in Card("x", notes=["a"]).markdown()  # type: ignore[arg-type]
    one, two = (Card("x", **good, warnings=["a"] * number) for number in (1, 2))  # type: ignore[arg-type]
    assert (one.verdict, one.word, two.word) == ("fair", "Done, with a warning", "Done, with 2 warnings")
    assert dataclasses.replace(one, title="y").word == one.word, "said once"
    for verdict in ("fair", "bad", "grey"):
        card = Card("x", verdict=verdict, word="Done", warnings=["a"])  # type: ignore[arg-type]
        assert (card.verdict, card.word) == (verdict, "Done")


def test_the_picture_is_inside_the_text() -> None:
    card = drawn()
    drawing = card.drawing()
    assert drawing is not None and card.markdown().startswith("# Expert\n")
    found = re.search(r"!\[Expert\]\(data:image/png;base64,([^)]+)\)", card.markdown())
    assert found is not None and base64.b64decode(found[1]) == drawing.together
    assert size_of(drawing.together) == (450, 300)


RAN = Ran(
    "prune",
    {"where": "return >= 3", "files": {"rows": 5}},
    {"python": "3.11", "git": "abc+dirty"},
    "offline prune a b -s 'where=return >= 3'",
)
LINEAGE = 'flowchart LR\n  n0["pruned"]\n'


def blocks(text: str) -> dict[str, str]:
    """Fenced blocks by language, as CommonMark finds them: a fence ends at one of the same length or longer."""
    found = re.findall(r"^(`{3,})(\w+)\n(.*?)\n\1$", text, flags=re.M | re.S)
    return {language: content for _, language, content in found}


def test_a_card_says_what_ran_on_what_and_how_to_repeat_it() -> None:
    card = Card("Pruning", {"Kept": 3}, ran=RAN, lineage=LINEAGE, ancestors=[(0, "pruned"), (1, "data")])
    found = blocks(card.markdown())
    assert yaml.safe_load(found["yaml"]) == {"prune": {"where": "return >= 3", "files": {"rows": 5}}}
    assert found["mermaid"] == LINEAGE.rstrip() and found["console"] == RAN.command
    assert "python 3.11, git abc+dirty" in card.markdown()
    assert "offline prune a b -s &#39;where=return &gt;= 3&#39;" in card.html()
    assert f"again: {RAN.command}" in card.terminal(verbose=True) and RAN.command not in card.terminal()


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


def test_the_words_of_a_command_are_quoted_for_a_shell() -> None:
    assert (
        command("offline", "train", "my data", "-s", "where=a < 'b'")
        == """offline train 'my data' -s 'where=a < '"'"'b'"'"''"""
    )


def test_the_files_of_a_card_belong_together() -> None:
    card = drawn()
    files, drawing = card.files("000003"), card.drawing()
    assert list(files) == ["000003.png", "000003.html", "000003.md"], "what refers to the other comes last"
    assert drawing is not None and files["000003.png"] == drawing.together
    assert b"![Expert](000003.png)" in files["000003.md"] and b"base64" not in files["000003.md"]
    assert list(Card("No picture", {}).files("card")) == ["card.html", "card.md"]


def test_every_card_is_a_page_that_holds_all_it_shows() -> None:
    facts, details = {"Steps": 1234567, "Name": "<b>&amp;"}, {"More": "of it"}
    card = dataclasses.replace(drawn(2), facts=facts, details=details, ran=RAN, lineage=LINEAGE)
    page = dataclasses.replace(card, ancestors=[(0, "policy"), (1, "data <i>")]).html()
    for part in (
        "<td>1,234,567</td>",
        "<td>&lt;b&gt;&amp;amp;</td>",
        "← data &lt;i&gt;",
        "where: return &gt;= 3",
        "python 3.11",
    ):
        assert part in page
    drawing = card.drawing()
    assert drawing is not None and len(drawing.pictures) == 2
    assert all(base64.b64encode(picture).decode() in page for picture in drawing.pictures)
    assert page.index("<details>") < page.index("of it"), "everything else is folded"
    assert "<img" not in Card("No picture", {}).html() and "flowchart" not in page, "Mermaid needs a script"


def test_a_notebook_shows_the_card_as_a_part_of_its_page() -> None:
    part = drawn().html(is_page=False)
    assert part.startswith("<style>") and "<html" not in part and ":root" not in part
    selectors = [line.strip() for line in part.partition("<style>")[2].partition("</style>")[0].splitlines() if "{" in line]
    assert all(line.startswith((".offline-card", "@media")) for line in selectors), "nothing else on the page changes"


def test_a_picture_that_cannot_be_read_any_more_is_left_out() -> None:
    def gone() -> Drawing:
        raise StorageError("gone")

    assert dataclasses.replace(drawn(), draw=gone).drawable().draw is None
    assert drawn().drawable().draw is not None


def test_sections_follow_the_facts_and_empty_ones_are_left_out() -> None:
    sections = [
        Section("Empty"),
        Section("Told", ["# a", "1. b", "- c"]),
        Section("Counted", columns=["n", "m"], rows=[[Mark("fail", "bad"), ""]]),
    ]
    card = Card("Title", {"a": 1}, word="keep", sentence="As it *is*.", sections=sections, warnings=["# w"])
    text = card.markdown()
    assert text.startswith("# Title\n\n**[-] keep.** As it \\*is\\*.\n\n- **Warning:** # w\n\n| | |\n|---|---|\n| a | 1 |\n")
    assert text.endswith("## Told\n\n- \\# a\n- 1\\. b\n- \\- c\n\n## Counted\n\n| n | m |\n|---|---|\n| fail |  |\n")
    page = card.html()
    assert "Empty" not in page and "<li># a</li>" in page and '<th scope="col">m</th>' in page
    assert re.search(r'<td data-column="n" class="bad"><span class="word">fail</span>\s*</td>', page)


def test_a_terminal_shows_little_unless_all_is_asked_for() -> None:
    card = Card(
        "Title",
        {"Dataset": "runs/a", "Steps": 12345},
        verdict="good",
        word="Done",
        sentence="All of it.",
        warnings=[f"warning {number}" for number in range(5)],
        notes=[f"note {number}" for number in range(9)],
        details={"Seed": 7},
        sections=[Section("Rules", columns=("rule", "found"), rows=[("order", "0 of 9"), ("x", "")])],
        next="offline train runs/a",
        places=["runs/a/_cards/000001"],
    )
    assert card.terminal().splitlines() == [
        "[!] Done, with 5 warnings: All of it.",
        "  Dataset  runs/a",
        "  Steps    12,345",
        "  ! warning 0",
        "  ! warning 1",
        "  ! warning 2",
        "  ! warning 3",
        "  ! warning 4",
        "  note: note 0",
        "  note: note 1",
        "  note: note 2",
        "  note: 6 more; -v shows them.",
        "card: runs/a/_cards/000001.html",
        "next: offline train runs/a",
    ]
    shown = card.terminal(verbose=True)
    assert "note 8" in shown and "Seed  7" in shown and "\nRules\n  rule   found\n  order  0 of 9\n  x\n" in shown


def test_a_terminal_names_files_from_where_the_user_is(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    card = Card(
        "x", {"Dataset": f"{tmp_path}/runs/a"}, places=[f"{tmp_path}/runs/card"], next=f"offline check {tmp_path}/runs/a"
    )
    assert card.terminal().splitlines()[1:] == ["  Dataset  runs/a", "card: runs/card.html", "next: offline check runs/a"]


def test_a_table_that_is_wider_than_the_terminal_is_shown_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    section = Section(
        "Wide", columns=("name", "why", "more", "last"), rows=[("a", "x" * 30, "y" * 30, "z"), ("b", "", "c", "d")]
    )
    lines = Card("x", sections=[section]).terminal(verbose=True).splitlines()
    assert lines[2:] == [
        "Wide",
        "  a",
        f"    why   {'x' * 30}",
        f"    more  {'y' * 30}",
        "    last  z",
        "  b",
        "    more  c",
        "    last  d",
    ]


def test_pages_name_what_is_below_the_root_relative_to_it() -> None:
    card = Card(
        "x",
        {"To": "/data/runs/a"},
        word="w",
        sentence="/data/runs/a is new.",
        next="offline check /data/runs/a",
        root="/data/runs",
    )
    assert cells(card) == [["To", "a"], ["Root", "/data/runs"]] and "a is new." in card.markdown()
    assert blocks(card.markdown())["console"] == "offline check /data/runs/a", "a command works from anywhere"


def test_several_pictures_lie_side_by_side_in_one_and_flow_on_a_page() -> None:
    one, three = drawn().drawing(), drawn(3).drawing()
    assert one is not None and three is not None
    assert [size_of(picture) for picture in three.pictures] == [(450, 300)] * 3 and size_of(three.together) == (900, 600)
    assert one.pictures == [one.together]
    changed = drawn(y=-5.0).drawing()
    assert changed is not None and changed.together != one.together
