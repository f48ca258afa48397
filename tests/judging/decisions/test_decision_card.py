"""The card of a decision, of results that were never made: each verdict, each part, hostile names."""

from __future__ import annotations

import io
import math
import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from offline_core.judging.decisions.result import ADOPT, GroupFinding, LogPart, Verdict
from offline_core.runtime.reporting.card import Card
from tests.judging.decisions.made_up import CALIBRATED, SENTENCES, candidate, candidates, difference, guardrail, made_up

HOSTILE = "a|b `c` $d$ <script>alert(1)</script> ![f](http://g) \"'> ]]> {{ 7*7 }}\n# out 🎲"

TAGS = {
    *[
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "p",
        "span",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "img",
        "ul",
        "li",
        "pre",
        "details",
        "summary",
    ]
}


class Page(HTMLParser):
    """Tags, their attributes and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def card_of(verdict: Verdict, **values: object) -> Card:
    return made_up(verdict, **values).card()


def size_of(card: Card) -> tuple[int, int]:
    drawing = card.drawing()
    assert drawing is not None
    with Image.open(io.BytesIO(drawing.together)) as image:
        return image.size


@pytest.mark.parametrize(
    ("verdict", "mark", "color"),
    [
        ("promote", "[ok]", "good"),
        ("test", "[-]", "grey"),
        ("collect", "[-]", "grey"),
        ("keep", "[-]", "grey"),
        ("refused", "[!]", "fair"),
    ],
)
def test_the_verdict_is_on_top_in_a_word_a_colour_and_a_sentence(verdict: Verdict, mark: str, color: str) -> None:
    card = card_of(verdict, warnings=[])
    sentence = SENTENCES[verdict]
    assert card.markdown().startswith(f"# Decision\n\n**{mark} {verdict.capitalize()}.** {sentence}\n")
    page = Page(card.html())
    assert ("p", {"class": f"headline {color}"}) in page.tags
    assert page.text.index(verdict.capitalize()) < page.text.index(sentence) < page.text.index("Against")
    assert size_of(card) == (900, 600)


def test_a_promotion_that_the_decision_warns_of_is_not_green() -> None:
    assert card_of("promote").markdown().startswith("# Decision\n\n**[!] Promote, with a warning.** ")


def test_each_part_is_on_the_card_of_both_kinds() -> None:
    card = card_of("promote", **CALIBRATED)
    for text in (card.markdown("card.png"), Page(card.html()).text):
        shown = " ".join(text.replace("\\", "").split())
        for part in (
            "+1.2 (+0.65 to +1.75)",
            "holds: comfort, unsure: cost",
            "falls: comfort",
            "no finalist",
            "and 80 % are needed (min_overlap)",
            "in its first third",
            "obs[1] < 0.2 and obs[3] ≥ 1.5: it does as the behaviour in 31 %",
            "the log has 44 % of what it does",
            "0000000a",
            "calibrated to within 2.1 %",
            "runs/log version 3",
        ):
            assert part in shown


def test_guardrails_groups_and_both_ends_of_a_log_that_drifts_are_on_the_card() -> None:
    first = candidates()[0]
    groups = [
        GroupFinding(group="zone = north", episodes=300, difference=difference(1.5, 0.5), shown="better"),
        GroupFinding(group="zone = south", episodes=180, difference=difference(-0.8, 0.3), shown="worse"),
        GroupFinding(group="zone = attic", episodes=3, difference=None),
    ]
    ends = [GroupFinding(group="last third", episodes=160, difference=difference(0.1, 0.4))]
    parts = [
        LogPart(name="first third", episodes=333, mean_return=11.2, actions={"off": 0.8, "on": 0.2}),
        LogPart(name="last third", episodes=333, mean_return=12.9, actions={"off": 0.5, "on": 0.5}),
    ]
    cost = first.guardrails[1].model_copy(update={"unit": "kWh", "recorded": 12.0})
    first = first.model_copy(update={"groups": groups, "parts": ends, "guardrails": [cost]})
    shown = made_up("promote", candidates=[first], parts=parts).card().markdown("card.png").replace("\\", "")
    for line in (
        "| iql | cost | 12 kWh | -0.05 (-0.25 to +0.15) kWh | -0.25 kWh | 0.1 kWh | unsure |",
        "Of 3 groups 2 are tested, to both sides, at a risk of 5 % over all of them together (Holm)",
        "| zone = south | 180 | -0.8 (-1.1 to -0.5) | worse |",
        "| zone = attic | 3 | – | too small |",
        "| first third | 333 | 11.2 | off: 0.8, on: 0.2 | 0 | – |",
        "| last third | 333 | 12.9 | off: 0.5, on: 0.5 | 160 | +0.1 (-0.3 to +0.5) |",
    ):
        assert line in shown, line


def test_what_a_decision_lacks_is_left_out() -> None:
    bare = candidate("bc", judged=difference(-0.1), overlap=0.99)
    card = card_of("keep", candidates=[bare], warnings=[])
    assert re.findall(r"^## (.+)$", card.markdown("card.png"), flags=re.M) == [
        "In plain words",
        "Candidates",
        "Next",
        "Details",
    ]
    assert size_of(card) == (900, 300), "neither guardrails nor a fitted behaviour"
    assert "Worth an A/B test" in card_of("test").markdown("card.png")
    assert "Why this log cannot be judged" in card_of("refused").markdown("card.png")
    assert "| Episodes needed | about 1,800 more |" in card_of("collect").markdown("card.png")


def test_the_page_runs_nothing_and_asks_no_other_host() -> None:
    page = Page(card_of("promote").html())
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "form", "a"}
    pictures = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    assert len(pictures) == 3 and all(str(picture).startswith("data:image/png;base64,") for picture in pictures)
    [policy] = [attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert "prefers-color-scheme: dark" in page.text


@pytest.mark.parametrize("name", [HOSTILE, "x" * 300, "größe 東京", "$\\frac{", "- # 1. x", "<b>"])
def test_names_stay_names(name: str) -> None:
    first = candidate(
        name,
        judged=difference(1.0, p_value=math.nan, largest_share=math.nan),
        overlap=math.nan,
        guardrails=[guardrail(name, -1.0, max_fall=0.0, passed=False)],
        reasons=[name],
        differs_where=[name],
        unsupported_where=[name],
        carried_by={name: 1.0},
    )
    card = card_of("promote", candidates=[first], sentence=name, warnings=[name], against=name)
    page = Page(card.html())
    assert {tag for tag, _ in page.tags} <= TAGS and " ".join(name.split()) in page.text
    text = card.markdown("card.png")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) - 1 for line in tables}
    assert widths == {2, 7, 9}
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert len(headings) == 9 and "![f]" not in text and "<script" not in text.replace("\\<", "")
    assert not [line for line in text.splitlines() if re.match(r"- ([#>+-]|\d+[.)]) ", line)]


def test_the_next_command_is_one_that_works() -> None:
    """A decision for no registry promotes nowhere."""
    assert "Decide again with registry=" in card_of("promote").advice and not card_of("promote").next
    assert card_of("promote", registry="runs/registry/hvac").next == "offline promote runs/registry/hvac runs/decision"


def test_a_return_of_one_step_without_a_discount_is_told_in_the_words_of_its_reward() -> None:
    details = card_of("keep", gamma=1.0, horizon=1, reward="click").details
    assert details["Recorded"] == "11.9 click on the judging episodes" and "Horizon" not in details
    other = card_of("keep", horizon=24).details
    assert other["Recorded"] == "11.9 on the judging episodes, discounted by 0.99" and other["Horizon"] == "24 steps"
    assert str(card_of("keep", reward="click").facts["Candidate"]).endswith(") click")


def test_what_is_refused_claims_no_difference() -> None:
    assert "difference" in str(card_of("keep").facts["Candidate"])
    assert "difference" not in str(card_of("refused").facts["Candidate"])


def test_candidates_are_counted_as_finalists_and_as_judged() -> None:
    assert card_of("keep").facts["Candidates"] == "4, 3 of them finalists; 2 could be judged"
    assert card_of("refused").facts["Candidates"] == "4, 3 of them finalists; 0 could be judged"


def test_of_what_was_no_finalist_no_guardrail_is_told() -> None:
    """Whether some are set, or none."""
    [table] = [each for each in card_of("keep").sections if each.title == "Candidates"]
    told = {row[0]: row[table.columns.index("Guardrails")] for row in table.rows}
    assert (told["td3_bc"], told["bc"]) == ("none set", "–")


def test_a_checkpoint_that_is_shown_beside_a_rule_is_told() -> None:
    held = guardrail("comfort", 0.1, max_fall=0.2, passed=True)
    shown, unsure = candidate("iql", judged=difference(1.2), guardrails=[held]), candidate("bc", judged=difference(0.4))
    rule = candidate("rule", checkpoint="rule:1", judged=difference(2.0))
    found = made_up("promote", checkpoint="rule:1", candidates=[rule, unsure, shown])
    told = "iql is a checkpoint, and is shown to be better, too: decide again without rule to promote it."
    assert str(found.card().advice).endswith(told)
    assert made_up("promote", checkpoint="rule:1", candidates=[rule, unsure]).card().advice == ADOPT


def test_a_log_that_cannot_tell_shows_few_of_many_candidates() -> None:
    many = [candidate(f"p{number}", reasons=["it is too far"]) for number in range(20)]
    for verdict, count in (("refused", 3), ("keep", 20)):
        [table] = [each for each in card_of(verdict, candidates=many).sections if each.title == "Candidates"]
        assert len(table.rows) == count
        assert [*table.sentences] == (["The first 3, and 17 more in result.json."] if verdict == "refused" else [])
