"""The page of a root in a real browser, from a file: light and dark, no request, nothing of data runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import offline_core as offline
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.result_cache import store_result
from offline_core.data.store.json_files import line_of
from offline_core.data.store.location import Location
from offline_core.judging.sweeps.result import SweepResult, SweptRun, SweptSetting
from offline_core.runtime.provenance import made_in_run
from tests.cases import slow_but
from tests.chromium import MARKS, SCREENSHOTS, browser
from tests.data.datasets.factories import episode, write_dataset
from tests.judging.decisions.made_up import SENTENCES, made_up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "<img src=x onerror=alert(1)>"
RUNS = "https://prefect.example/runs"
PARTS = (
    *("overview", "datasets", "experiments", "policies", "lineage"),
    *("dataset/recording", "dataset/recording/episode/1", "policy/sweep%2Fbc%2Fbest", "experiment/sweep%2Fbc"),
)

pytestmark = MARKS
__all__ = ["browser"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with 60 episodes, two finished runs and two that go on, and hostile names."""
    root = tmp_path_factory.mktemp("pages") / "runs"
    made = [episode(i, 20 + i, eps_id=HOSTILE if i == 1 else f"episode-{i:02}") for i in range(60)]
    with made_in_run(HOSTILE):
        write_dataset(root / "recording", made)
    offline.check(root / "recording")
    held_out = {"held_out": str(root / "recording")}
    settings = []
    for number, name in enumerate(("bc", "marwil")):
        chosen = {"algorithm": name, "optimizer": {"max_epochs": 4, "batch_size": 256}, "evaluation": held_out}
        run = offline.train(root / "recording", **chosen, output=root / "sweep" / name)
        settings.append(setting(name, str(run.best), {f"network.parameter_{i:02}": 10 * number + i for i in range(12)}))
    result = SweepResult(
        checkpoint=settings[0].runs[0].checkpoint,
        dataset=open_dataset(str(root / "recording")).ref,
        score="held-out loss",
        settings=settings,
        expected_best={},
        failures=[],
        confidence=0.95,
        seconds=1.0,
    )
    store_result(Location.of(str(root / "sweep/result.json")), "", result, fingerprints={})
    for name in ("first", "second"):
        (root / name).mkdir()
        lines = [line_of({"updates": 100 * i, "loss": 1 / i, "episode_return_mean": 10.0 * i}) for i in range(1, 9)]
        (root / name / "metrics.jsonl").write_bytes(b"".join(lines))
    (root / HOSTILE).mkdir()
    (root / HOSTILE / "result.json").write_text(HOSTILE)
    return f"file://{offline.report(root, episodes=60, runs_url=RUNS).uri}"


def setting(name: str, checkpoint: str, parameters: dict[str, int]) -> SweptSetting:
    run = SweptRun(seed=0, checkpoint=checkpoint, score=1.0, curve=[], updates=1, seconds=1.0)
    numbers = {"mean": 1.0, "interquartile_mean": 1.0, "low": None, "high": None}
    return SweptSetting(name=name, parameters=parameters, algorithm=name, folder="", runs=[run], curve=[], **numbers)


@pytest.fixture(params=slow_but(["light", "dark"], "light"))
def page(request: pytest.FixtureRequest, browser: Browser, file: str) -> Iterator[Page]:
    """A page that fails at the end if it asked for anything, wrote to the console, or ran what it shows."""
    asked: list[str] = []
    said: list[str] = []
    opened = browser.new_page(color_scheme=request.param, viewport={"width": 1280, "height": 900})
    opened.on("request", lambda each: asked.append(each.url))
    opened.on("console", lambda each: said.append(each.text))
    opened.on("pageerror", lambda each: said.append(str(each)))
    opened.on("dialog", lambda each: (said.append(each.message), each.dismiss()))
    opened.goto(file)
    yield opened
    opened.close()
    assert {url.partition("#")[0] for url in asked if not url.startswith("data:")} == {file}
    assert said == []


def shown(page: Page, part: str) -> None:
    page.evaluate("part => { location.hash = part; }", part)
    page.wait_for_function("part => document.querySelector('nav a[aria-current]') && location.hash === '#' + part", arg=part)


def test_each_part_is_drawn(page: Page, request: pytest.FixtureRequest) -> None:
    for part in PARTS:
        shown(page, part)
        page.locator("main table, main svg").first.wait_for()
        if SCREENSHOTS:
            scheme = request.node.callspec.params["page"]
            page.screenshot(path=Path(SCREENSHOTS, f"{part.replace('/', '-')}-{scheme}.png"), full_page=True)
    shown(page, "overview")
    assert HOSTILE in page.locator("main").inner_text()


@pytest.mark.slow
def test_a_version_links_the_run_that_made_it(page: Page) -> None:
    shown(page, "dataset/recording")
    link = page.get_by_role("region", name="versions").get_by_role("link")
    assert link.get_attribute("href") == f"{RUNS}/flow-run/{quote(HOSTILE, safe='()')}"
    assert page.get_by_role("link", name="Runs of flows").get_attribute("href") == RUNS


@pytest.mark.slow
def test_the_table_sorts_filters_and_pages(page: Page) -> None:
    shown(page, "dataset/recording")
    table = page.get_by_role("region", name="episodes")

    def steps() -> list[int]:
        return [int(each) for each in table.locator("tbody tr td:nth-child(3)").all_inner_texts()]

    table.get_by_role("button", name="steps").click()
    assert table.locator("th[aria-sort=descending]").count() == 1
    assert steps() == list(range(79, 29, -1))
    table.get_by_role("button", name="steps").press("Enter")
    assert steps()[:3] == [20, 21, 22]
    page.get_by_role("button", name="Next").first.click()
    assert steps() == list(range(70, 80))
    page.get_by_role("searchbox", name="Filter episodes").fill("episode-07")
    assert steps() == [27]


@pytest.mark.slow
def test_an_episode_opens_and_is_scrubbed_by_keys(page: Page) -> None:
    shown(page, "dataset/recording")
    page.get_by_role("link", name="episode-07").click()
    page.locator("#episode svg[role=img]").nth(2).wait_for()
    slider = page.get_by_role("slider", name="Step")
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "step 3 of 27"
    value = page.locator("#episode .legend").first.inner_text()
    wanted = episode(7, 27).observations[3, 0]
    assert f"obs[0] = {float(f'{wanted:.4g}'):g}" in value


@pytest.mark.slow
def test_curves_are_chosen_in_the_table(page: Page) -> None:
    shown(page, "experiments")
    page.get_by_role("combobox", name="Curves").select_option("loss")
    page.get_by_role("button", name="Draw none").click()
    assert page.locator("main figure").count() == 0
    for name in ("first", "second"):
        page.get_by_role("checkbox", name=f"Draw {name}").check()
    assert page.locator("main figure .legend li").all_inner_texts() == ["first", "second"]


@pytest.mark.slow
def test_a_wide_table_scrolls_in_its_own_box(page: Page) -> None:
    page.set_viewport_size({"width": 700, "height": 900})
    shown(page, "experiments")
    table = page.get_by_role("region", name="experiments")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert table.evaluate("box => box.scrollWidth > 2 * box.clientWidth")
    assert "The same in all 4 rows: kind training" in page.locator("main").inner_text()
    assert "kind" not in table.locator("th").all_inner_texts()
    table.get_by_role("button", name="parameter 03").click()
    assert table.locator("tbody tr td:first-child").all_inner_texts()[:2] == ["marwil, seed 0", "bc, seed 0"]
    table.get_by_role("link", name="bc, seed 0").click()
    page.get_by_role("heading", name="bc, seed 0").wait_for()
    page.get_by_role("link", name="sweep/bc/best").click()
    page.get_by_role("heading", name="bc, seed 0, best").wait_for()


@pytest.mark.slow
def test_a_zero_is_a_zero(page: Page) -> None:
    assert page.evaluate("ticks(-0.75, 0, 7).map((each) => text(each)).at(-1)") == "0" == page.evaluate("text(-0)")


@pytest.mark.slow
def test_a_path_is_cut_and_a_list_or_a_sentence_is_not(page: Page) -> None:
    shown_as = "value => el('p', null, broken(value)).textContent"
    path, many = (
        "s3://bucket/a/long/folder/of/a/company/logs/zones.ndjson",
        "logs/january/*/zones.ndjson, logs/january/*/meters.csv",
    )
    assert page.evaluate(shown_as, path) == "…/logs/zones.ndjson" and page.evaluate(shown_as, many) == many


@pytest.mark.slow
def test_lines_of_one_colour_have_different_dashes(page: Page) -> None:
    looks = page.evaluate("[...Array(24).keys()].map(i => color(i) + dash(i))")
    assert len({*looks}) == 24


@pytest.mark.slow
def test_decisions_are_shown_where_their_policies_are_elsewhere(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "decision").mkdir()
    store_result(Location.of(str(tmp_path / "decision/result.json")), "", made_up("promote"), fingerprints={})
    with browser.new_page() as opened:
        opened.goto(f"file://{offline.report(tmp_path).uri}#policies")
        said = opened.locator("main").inner_text()
    assert "There is no policy." in said and SENTENCES["promote"] in said and "2, without a bound" in said


@pytest.mark.slow
def test_no_part_is_wider_than_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for part in PARTS:
        shown(page, part)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), part


@pytest.mark.slow
def test_light_and_dark_differ_and_follow_the_reader(page: Page, request: pytest.FixtureRequest) -> None:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = max(int(part) for part in colour[4:-1].split(",")[:3]) < 64
    assert dark == (request.node.callspec.params["page"] == "dark")
