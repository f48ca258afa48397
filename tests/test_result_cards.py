"""The card of each kind of result: its verdict goes with what is said, and all that holds of all cards."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from offline_core.data.importing.report import ImportResult
from offline_core.data.quality.config import QualityConfig
from offline_core.judging.estimation.config import METHODS_IN_WORDS
from offline_core.judging.estimation.estimators import METHODS
from offline_core.judging.estimation.result import Estimate, EstimateResult
from offline_core.judging.ranking.result import Outlier
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.stored_results import MODELS
from offline_core.learning.result import LearnedResult, PlayedResult, TrainingResult
from offline_core.runtime.reporting import figures, palette
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.reporting.returns import beside_expert, played
from offline_core.runtime.result import PolicyResult, Result
from offline_core.runtime.stage import STAGES, load
from tests import made_up_results
from tests.made_up_results import METRICS, estimated, finding, quality, results, training

STAGES_OF_RESULTS = sorted({*STAGES, "forget", "explain"} - {"rollback"})
"""A rollback returns what a promotion does."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    return results(tmp_path_factory.mktemp("results"))


def all_kinds(kind: type[Result] = Result) -> Iterator[type[Result]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith("offline_core"):
            yield below
            yield from all_kinds(below)


def test_there_is_a_card_of_every_kind_of_result(made: dict[str, Result]) -> None:
    for stage in STAGES.values():
        load(stage.function)
    assert sorted(made) == STAGES_OF_RESULTS
    assert {type(each) for each in made.values()} == {*all_kinds()} - {PolicyResult, LearnedResult, PlayedResult}
    assert {load(kind) for kind in MODELS.values()} <= {type(each) for each in made.values()}


class Page(HTMLParser):
    """Tags with those around them, and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.wide: list[bool] = []
        """Whether each table lies in a box that scrolls by itself."""
        self.text = ""
        self._open: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.wide.append(any("wide" in kind.split() for _, kind in self._open))
        if tag not in ("meta", "img"):
            self._open.append((tag, dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("stage", STAGES_OF_RESULTS)
def test_a_card_is_short_and_says_what_comes_next(made: dict[str, Result], stage: str) -> None:
    result, card = made[stage], made[stage].card()
    assert len(card.facts) <= 8 and len(card.terminal().splitlines()) <= 15
    assert card.word and card.sentence.endswith(".") and card.about[0]
    assert card.next or card.advice or card.verdict == "bad" or stage == "export"
    assert repr(result) == str(result) == f"{type(result).__name__}({card.headline})" and "\n" not in repr(result)
    assert not re.search(r"\d\.\d{7}", card.terminal(verbose=True)), "numbers are for people"


@pytest.mark.parametrize("stage", STAGES_OF_RESULTS)
def test_a_page_fits_a_phone_by_its_construction(made: dict[str, Result], stage: str) -> None:
    """No width is fixed beyond it, tables scroll in their own box, pictures shrink; it runs nothing and asks no other host."""
    text = made[stage].card().drawable().html()
    page = Page(text)
    assert all(page.wide)
    assert ".facts :is(th, td) { overflow-wrap: anywhere; }" in text, "a long name leaves room for its value"
    style = text.partition("<style>")[2].partition("</style>")[0]
    fixed = re.findall(r"(?<!max-)width: ([\d.]+)(px|rem)", style)
    assert all(float(size) * (16 if unit == "rem" else 1) <= 390 for size, unit in fixed)
    assert "filter" not in style and ".offline-card img { max-width: 100%" in style
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "form", "a"}
    assert all(str(attributes["src"]).startswith("data:image/png;base64,") for tag, attributes in page.tags if tag == "img")
    [policy] = [attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert "prefers-color-scheme: dark" in style


@pytest.mark.parametrize("stage", STAGES_OF_RESULTS)
def test_pictures_are_transparent(made: dict[str, Result], stage: str) -> None:
    drawing = made[stage].card().drawing()
    for picture in [] if drawing is None else [*drawing.pictures, drawing.together]:
        with Image.open(io.BytesIO(picture)) as image:
            assert image.mode == "RGBA"
            alpha = np.asarray(image)[..., 3]
        assert (alpha == 0).mean() > 0.3 and alpha[0, 0] == 0 and (alpha == 255).any()


def luminance(color: str) -> float:
    parts = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("page", [palette.LIGHT["page"], palette.DARK["page"]])
def test_colours_of_pictures_read_on_light_and_on_dark(page: str) -> None:
    for name, least in {"ink": 4.0, "quiet": 4.0, **dict.fromkeys(("good", "fair", "bad", *palette.SERIES), 3.0)}.items():
        lighter, darker = sorted((luminance(palette.PICTURE[name]), luminance(page)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= least, name


HOSTILE = "a|b `c` $d$ <script>alert(1)</script> ![f](http://g) \"'> ]]> {{ 7*7 }}\n# out"


def hostile(kind: type[Result], stage: str, folder: Path) -> Card:
    """The card of a result whose every text is hostile."""

    def spoiled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: spoiled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [spoiled(each) for each in value]
        return HOSTILE if isinstance(value, str) else value

    values = {}
    good = results(folder)[stage]
    for name, value in good:
        spoil = spoiled(value) if isinstance(value, (str, list)) else value
        values[name] = spoil
    kept = {"verdict", "score", "format", "actions", "findings", "settings", "candidates", "recorders", "stages"}
    values |= {name: getattr(good, name) for name in kept & values.keys()}
    return kind.model_construct(None, **values).card()


@pytest.mark.parametrize("stage", STAGES_OF_RESULTS)
def test_hostile_names_stay_names(made: dict[str, Result], stage: str, tmp_path: Path) -> None:
    card = hostile(type(made[stage]), stage, tmp_path).drawable()
    text = card.markdown("card.png")
    text = re.sub(r"^(`{3,})\w+\n.*?\n\1$", "", text, flags=re.M | re.S)  # in which everything is text
    assert "<script" not in text.replace("\\<", "") and "![f]" not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) - 1 for line in tables} <= {2, 3, 4, 5, 6, 7, 9}
    assert "script" not in {tag for tag, _ in Page(card.html()).tags}


@pytest.mark.parametrize(
    ("target", "word", "verdict"), [(475.0, "Target not reached", "bad"), (90.0, "Target reached", "good")]
)
def test_a_return_is_held_against_its_target(target: float, word: str, verdict: str) -> None:
    told = played(METRICS, target, is_reached=target == 90.0)
    assert (told.word, told.verdict) == (word, verdict)
    assert told.sentence == f"Return 97.2 ± 12.0 over 30 episodes (greedy actions); the target is {target:g}."


@pytest.mark.parametrize(
    ("mean", "target", "text"),
    [
        *((7.96, 8.0, "7.96"), (7.99999, 8.0, "7.99999"), (8.0, 8.0, "8.0"), (8.04, 8.0, "8.04"), (7.9, 8.0, "7.9")),
        *((1e-9 + 8, 8.0, "8.0"), (0.76, 0.78, "0.76"), (0.84, 0.82, "0.84")),
    ],
)
def test_a_return_has_digits_that_tell_it_from_its_target(mean: float, target: float, text: str) -> None:
    assert played(METRICS | {"episode_return_mean": mean}, target).sentence.startswith(f"Return {text} ±")


def test_few_episodes_are_a_warning() -> None:
    told = played(METRICS | {"episodes": 5}, actions="sampled")
    assert told.verdict == "fair" and "over 5 episodes (sampled actions; so few say little)" in told.sentence
    assert played(METRICS | {"episodes": 5}, 90.0, is_reached=True).verdict == "fair"


def test_a_policy_that_never_played_says_so(made: dict[str, Result]) -> None:
    card = training("runs/policy/best", made["check"].dataset, metrics={}, warnings=[]).card()  # type: ignore[attr-defined]
    assert (card.word, card.verdict) == ("Never played", "grey") and card.next.startswith("offline split ")


def test_a_training_shows_its_warnings_and_names_its_algorithm(made: dict[str, Result]) -> None:
    card = made["train"].card()
    assert (card.verdict, card.word) == ("fair", "Target reached, with a warning")
    assert card.facts["Algorithm"] == "marwil" and card.facts["Time"] == "3 min 5 s"
    assert isinstance(made["train"], TrainingResult) and card.places == [f"{made['train'].checkpoint.rpartition('/')[0]}/card"]


def cloned(expert: float, *, target: float | None = None, expert_std: float = 0.0, **metrics: float) -> tuple[str, str, str]:
    of = {"episode_return_mean": expert, "episode_return_std": expert_std, "episodes": 100.0}
    return beside_expert(METRICS | {"episode_return_std": 3.0} | metrics, of, target, "greedy")


@pytest.mark.parametrize(
    ("expert", "word", "verdict"), [(99.0, "Worse than the expert", "fair"), (98.0, "As good as the expert", "good")]
)
def test_a_clone_is_held_against_its_expert(expert: float, word: str, verdict: str) -> None:
    found = cloned(expert)
    assert found[:2] == (verdict, word), "two standard errors are 1.1"
    assert cloned(98.0, episodes=5)[:2] == ("fair", "Not clearly worse than the expert")
    assert f"the expert returned {expert:g}.0" in found[2]
    assert cloned(99.0, expert_std=10.0)[1] == "As good as the expert", "what the expert returned has an error, too"


def test_a_clone_below_its_expert_that_reaches_the_experts_target_is_no_failure() -> None:
    found = cloned(500.0, target=475.0, episode_return_mean=486.0, episode_return_std=20.0, episodes=100)
    assert found[:2] == ("good", "Target reached")
    assert found[2].endswith("the expert returned 500.0, its target was 475.")
    assert cloned(500.0, target=490.0, episode_return_mean=486.0, episode_return_std=20.0)[1] == "Worse than the expert"


def test_a_return_that_is_nan_is_no_success() -> None:
    nan = float("nan")
    assert played(METRICS | {"episode_return_mean": nan}, 90.0).verdict == "bad"
    assert cloned(90.0, target=80.0, episode_return_mean=nan)[0] == "fair"


@pytest.mark.parametrize(
    ("start", "word", "verdict"),
    [(97.3, "Not better", "fair"), (97.0, "Not clearly better", "fair"), (90.0, "Better", "good")],
)
def test_fine_tuning_is_better_by_two_standard_errors(made: dict[str, Result], start: float, word: str, verdict: str) -> None:
    card = made["fine_tune"].model_copy(update={"start_return": start}).card()
    assert (card.word, card.verdict) == (word, verdict)


BETTER, UNSURE = (12.0, 11.0, 13.0), (12.0, 9.0, 13.0)


def told_of(estimates: dict[str, tuple[float, float, float]], *, unrecorded: float = 0.0, warnings: int = 0) -> EstimateResult:
    each = {"effective_episodes": 50.0, "largest_weight": 0.1}
    return estimated(
        estimates={name: Estimate(value=value, low=low, high=high, **each) for name, (value, low, high) in estimates.items()},
        warnings=["These estimates mean nothing."] * warnings,
        unrecorded_share=unrecorded,
    )


@pytest.mark.parametrize(
    ("values", "word", "verdict"),
    [
        ({"estimates": {"wis": BETTER, "wdr": BETTER}}, "Likely better", "good"),
        ({"estimates": {"wis": UNSURE, "wdr": BETTER}}, "Methods disagree", "fair"),
        ({"estimates": {"wdr": BETTER}, "unrecorded": 0.44}, "Perhaps better", "fair"),
        ({"estimates": {"wdr": BETTER}, "warnings": 1}, "Perhaps better", "fair"),
        ({"estimates": {"wdr": UNSURE}, "warnings": 1}, "Not told apart", "grey"),
        ({"estimates": {"wdr": (8.0, 7.0, 9.0)}}, "Likely worse", "bad"),
        ({"estimates": {"wdr": (8.0, 7.0, 9.0)}, "warnings": 1}, "Perhaps worse", "fair"),
    ],
)
def test_an_estimate_is_good_only_if_all_methods_say_so_and_nothing_speaks_against_it(
    values: dict[str, Any], word: str, verdict: str
) -> None:
    card = told_of(**values).card()
    assert (card.word, card.verdict) == (word, verdict)
    if "unrecorded" in values:
        assert card.sentence.endswith("44 % of the return was not recorded.")


@pytest.mark.parametrize("least", [10.0, 50.1])
def test_an_estimate_of_too_few_episodes_claims_nothing(least: float) -> None:
    result = told_of(estimates={"wdr": BETTER, "wis": BETTER}, warnings=1)
    card = result.model_copy(update={"min_effective_episodes": least}).card()
    if least < 50:
        assert card.word == "Perhaps better" and "wdr estimates" in card.sentence
    else:
        assert (card.word, card.verdict) == ("Too few episodes", "grey")
        assert card.sentence.startswith("wdr rests on 50.0 effective episodes, and 50.1 are needed")
        assert "better" not in card.sentence and "12" not in card.sentence


def test_an_estimate_says_how_sure_its_intervals_are_and_spells_units_as_the_log_does() -> None:
    card = told_of(estimates={"wdr": UNSURE}).model_copy(update={"reward": "Fare EUR"}).card()
    assert card.facts["Intervals"] == "95 %, two-sided: 2.5 % beyond each end, of resamples of the episodes"
    assert card.sections[0].columns[1].endswith("eturn in Fare EUR")


def test_the_first_note_of_an_append_says_what_it_did_and_is_no_warning(made: dict[str, Result]) -> None:
    imported = made["import"]
    assert isinstance(imported, ImportResult)
    counts = imported.counts.model_copy(update={"quarantined_rows": 0, "quarantined_files": 0})
    appended = imported.model_copy(update={"appended": object(), "counts": counts})
    assert appended.card().verdict == "good" and appended.card().facts["Appended"] == "Terminations are guessed."
    assert imported.model_copy(update={"counts": counts}).card().verdict == "fair"


def test_a_recording_says_what_its_return_is_of_and_what_greedy_actions_return(made: dict[str, Result]) -> None:
    card = made["record"].card()
    assert (card.verdict, card.word) == ("fair", "Recorded, below the policy")
    assert "(sampled actions; so few say little)" in card.sentence and "Greedy actions return 400.0" in card.warnings[0]
    assert made["record"].model_copy(update={"actions": "greedy"}).card().verdict == "good"


def test_rules_that_could_not_be_checked_are_not_met(made: dict[str, Result]) -> None:
    ref = made["check"].dataset  # type: ignore[attr-defined]
    card = quality(ref, finding("finite"), finding("bounds", of=0), finding("order", of=0)).card()
    assert (card.verdict, card.word) == ("good", "Gate passed")
    assert card.sentence == "1 of 3 rules are met, 2 do not apply."
    assert quality(ref, finding("finite", "fail"), finding("bounds", "warn")).card().word == "Gate failed"
    assert finding("signed", "fail", of=0).outcome == "fail"  # a rule of the user's own that looks at no step


def test_a_check_names_episode_step_and_cure_and_shows_the_worst_rules_first(made: dict[str, Result]) -> None:
    card = made["check"].card()
    assert card.warnings[0] == (
        "non_finite (fail): 3 of 56 steps are wrong. First: episode episode-0003, step 5. Prune with drop_non_finite: true."
    )
    assert [str(row[0]) for row in card.sections[0].rows] == ["fail", "warn", "not applicable", "pass"]
    assert made["check"].config == QualityConfig()  # type: ignore[attr-defined]


def test_a_version_that_is_not_the_latest_is_named_in_what_comes_next(made: dict[str, Result]) -> None:
    card = made["prune"].card()
    assert "version 1 is reused; the latest is version 7." in card.warnings[-1] and card.next.endswith("--version 1")


def test_what_was_learned_is_decided_on_by_what_was_held_out(made: dict[str, Result]) -> None:
    """And not estimated from the episodes that it learned from."""
    learned, swept = made["train"], made["sweep"]
    held = {"held_out": "runs/split/held_out"}
    card = learned.model_copy(update={"metrics": {}, **held}).card()
    assert card.next == f"offline decide runs/split/held_out {learned.checkpoint}"
    estimated = swept.model_copy(update={"score": "estimate"})
    assert estimated.model_copy(update=held).card().next == f"offline decide runs/split/held_out {swept.checkpoint}"
    chosen = estimated.model_copy(update={"estimated_on": swept.dataset})
    assert "let the sweep estimate on its train side" in chosen.card().advice, "a decision refuses what chose the policy"
    assert estimated.card().next.endswith("-s held_out_fraction=0.5") and "sweep its train side" in estimated.card().advice


def test_what_comes_next_is_a_command_or_prose_and_looks_like_it() -> None:
    card = Card("A card", word="Done", sentence="It is done.", advice="Nothing changes; wait.", next="offline ls runs")
    assert card.terminal().endswith("next: Nothing changes; wait.\nnext: offline ls runs")
    assert '<p>Nothing changes; wait.</p>\n<pre class="command">offline ls runs</pre>' in card.html()
    assert "## Next\n\nNothing changes; wait.\n\n```console\noffline ls runs\n```" in card.markdown()


@pytest.mark.parametrize("stage", STAGES_OF_RESULTS)
def test_the_next_command_is_no_prose(made: dict[str, Result], stage: str) -> None:
    following = made[stage].card().next
    assert not following or following.startswith(("offline ", "python ")) or following.endswith(")")


def test_a_unit_is_said_once(made: dict[str, Result]) -> None:
    why = "a return (9.5 standard deviations above the median); a length (7.0 standard deviations above the median)"
    outliers = [Outlier(episode=3, eps_id="x", score=9.5, farther_than=3, reason=why)]
    card = made["outliers"].model_copy(update={"outliers": outliers}).card()
    assert card.facts["Episode x"] == "a return (9.5 standard deviations above the median); a length (7.0 above the median)"
    assert card.sections[0].rows[0][2:] == ("9.5", "42.8 %", "a return (9.5 above the median); a length (7.0 above the median)")
    assert card.details["Scores of the episodes"] == "50 % up to 1.0, 90 % up to over 1,000 standard deviations"


def test_estimators_have_their_names_in_words(made: dict[str, Result]) -> None:
    assert METHODS_IN_WORDS.keys() == METHODS.keys()
    assert "weighted importance sampling (wis)" in [row[0] for row in made["estimate"].card().sections[0].rows]


def test_pictures_of_a_sweep_name_settings_by_what_differs(made: dict[str, Result]) -> None:
    sweep = made["sweep"]
    assert isinstance(sweep, SweepResult)
    name = "algorithm=marwil, optimizer.max_updates=120, network.hidden_sizes=[64, 64]"
    settings = [sweep.settings[0].model_copy(update={"name": name})]
    assert settings[0].short_name == "marwil, max_updates=120, hidden_sizes=[64, 64]"
    first, *_ = sweep.model_copy(update={"settings": settings})._pictures()
    axes = figures.new_axes()
    first(axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1. ...0, hidden_sizes=[64, 64]"]


def test_addresses_in_tables_are_below_the_root(made: dict[str, Result]) -> None:
    card = made["sweep"].card()
    root = str(card.sections[1].rows[0][3]).partition("/sweep/")[0]
    assert f'<td data-column="path">{root}' not in dataclasses.replace(card, root=root).html()


def test_nothing_is_deleted_by_the_next_command_that_was_not_shown() -> None:
    before, after = (made_up_results.vacuumed(Path("/runs"), deleted=deleted).card() for deleted in (False, True))
    assert (before.word, before.advice) == ("Would delete", "Delete them by the same command with delete=true.")
    assert (after.word, after.advice) == ("Deleted", "")
