"""The served page in a real browser: live, by keys, marks, and nothing from elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import offline_core as offline
from offline_core.data.datasets.failure import keep_failure
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.marks import read_marks
from offline_core.data.store.location import Location
from offline_core.errors import NonFiniteError
from offline_core.keeping.homepage.serving import ReportServer
from tests.cases import slow_but
from tests.chromium import MARKS, SCREENSHOTS, browser
from tests.keeping.homepage.served import HOSTILE, server_of, write_metrics

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PARTS = (
    *("overview", "datasets", "experiments", "policies", "lineage"),
    *("dataset/building", "dataset/building/episode/57", "dataset/camera/episode/1", "policy/policy%2Fbest"),
    *("policy/sweep%2F0000000000000000%2F1%2Fbest", "experiment/failed"),
    *("experiment/sweep%2F0000000000000000%2F1", f"dataset/{HOSTILE.replace(' ', '%20')}/episode/1"),
)
CONTRAST = r"""() => {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (node) => {
    const [r, g, b, alpha = 1] = channels(getComputedStyle(node).backgroundColor);
    return alpha || !node.parentElement ? [r, g, b] : behind(node.parentElement);
  };
  const weak = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, style = getComputedStyle(node);
    const isShown = walker.currentNode.textContent.trim() && node.checkVisibility();
    if (!isShown || node.closest("script, style, noscript, :disabled")) continue;
    const colors = [channels(node.closest("svg") ? style.fill : style.color), behind(node)];
    const [light, dark] = colors.map(luminance).sort((a, b) => b - a), ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) weak.push(`${node.nodeName} ${node.textContent.slice(0, 40)} ${ratio.toFixed(2)}`);
  }
  return weak;
}"""
CLICKED = r"""() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility() && !each.disabled && !each.dataset.reached)
  .map((each) => (each.ariaLabel || each.labels?.[0]?.textContent || each.textContent).trim())"""
"""The names of what is not reached yet."""

pytestmark = [*MARKS, pytest.mark.slow]
__all__ = ["browser"]


@pytest.fixture
def server(whole: Path, tmp_path: Path) -> Iterator[ReportServer]:
    shutil.copytree(whole, tmp_path / "runs")
    write_metrics(tmp_path / "runs/failed", 3)
    operation = Operation(name="train", config={"algorithm": "iql", "seed": 7, "optimizer": {"learning_rate": 3.0}})
    failed = Location.of(str(tmp_path / "runs/failed"))
    keep_failure(failed, NonFiniteError("The loss is NaN at update 300."), operation, [])
    with server_of(tmp_path / "runs") as server:
        yield server


@pytest.fixture(params=slow_but(["light", "dark"], "light"))
def page(request: pytest.FixtureRequest, browser: Browser, server: ReportServer) -> Iterator[Page]:
    """A page that fails at the end if it asked another host for anything, wrote to the console, or ran what it shows."""
    asked: list[str] = []
    said: list[str] = []
    with browser.new_context(color_scheme=request.param, viewport={"width": 1400, "height": 900}) as context:
        opened = context.new_page()
        opened.on("request", lambda each: asked.append(each.url))
        opened.on("console", lambda each: said.append(each.text))
        opened.on("pageerror", lambda each: said.append(str(each)))
        opened.on("dialog", lambda each: (said.append(each.message), each.dismiss()))
        opened.goto(server.address)
        opened.locator("main h2").first.wait_for()
        yield opened
    origin = server.address.partition("?")[0]
    assert [url for url in asked if not url.startswith((origin, "data:"))] == []
    assert said == []


def shown(page: Page, part: str) -> None:
    page.evaluate("part => { location.hash = part; }", part)
    page.wait_for_function("() => document.querySelector('main').dataset.shown === location.hash")


def test_each_part_is_drawn_reads_well_and_fits_a_phone(page: Page, request: pytest.FixtureRequest) -> None:
    assert "token" not in page.url
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for part in PARTS:
            shown(page, part)
            page.locator("main table, main svg").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (part, width)
            assert page.evaluate(CONTRAST) == [], (part, width)
            if SCREENSHOTS:
                name = f"{part.replace('/', '-').replace('%', '')}-{width}-{request.node.callspec.params['page']}.png"
                page.screenshot(path=Path(SCREENSHOTS, f"served-{name}"), full_page=True)


def test_a_reload_needs_no_token(page: Page) -> None:
    page.reload()
    page.locator("main h2").first.wait_for()


def test_what_is_new_appears_without_a_reload(page: Page, server: ReportServer) -> None:
    root = Path(server.live.root.path)
    shown(page, "experiments")
    page.get_by_role("button", name="Draw none").click()
    page.get_by_role("checkbox", name="Draw going on").check()
    page.wait_for_function("() => document.querySelectorAll('main figure circle').length === 8")
    page.get_by_role("searchbox", name="Filter experiments").fill("n")
    write_metrics(root / "going on", 11)
    page.wait_for_function("() => document.querySelectorAll('main figure circle').length === 11")
    write_metrics(root / "new run", 3)
    page.get_by_role("link", name="new run").wait_for()
    assert page.get_by_role("searchbox", name="Filter experiments").input_value() == "n"
    assert page.evaluate("document.activeElement.type") == "search"
    shown(page, "dataset/building")
    page.get_by_role("region", name="versions").wait_for()
    offline.prune(root / "building", output=root / "building", where="eps_id <> 'episode-0003'")
    page.get_by_role("heading", name="Episodes of version 2").wait_for()


def test_a_note_is_written_outlasts_what_comes_meanwhile_and_is_found(page: Page, server: ReportServer) -> None:
    root = Path(server.live.root.path)
    shown(page, "experiment/going%20on")
    note, save = page.get_by_role("textbox", name="Note"), page.get_by_role("button", name="Save note")
    assert save.is_disabled()
    note.fill("The baseline #paper")
    write_metrics(root / "going on", 12)
    page.get_by_role("cell", name="1,200").wait_for()
    assert note.input_value() == "The baseline #paper"
    save.click()
    page.wait_for_function("() => document.querySelector('main textarea + button').disabled")
    assert offline.about(root / "going on").description == "The baseline #paper"
    shown(page, "experiments")
    page.get_by_role("searchbox", name="Filter experiments").fill("#paper")
    page.wait_for_function("() => document.querySelectorAll('main [aria-label=experiments] tbody tr').length === 1")


def test_keys_go_from_episode_to_episode_in_the_order_of_the_list(page: Page) -> None:
    shown(page, "dataset/building")
    page.get_by_role("region", name="episodes").get_by_role("button", name="return").click()
    order = page.get_by_role("region", name="episodes").locator("tbody a").all_inner_texts()[:3]
    page.get_by_role("link", name=order[0]).click()
    page.get_by_role("heading", name=f"Episode {order[0]}").wait_for()
    for key, wanted in (("n", order[1]), ("n", order[2]), ("p", order[1]), ("p", order[0]), ("p", order[0])):
        page.keyboard.press(key)
        page.get_by_role("heading", name=f"Episode {wanted}").wait_for()
    slider = page.get_by_role("slider", name="Step")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "step 2 of 48"
    page.get_by_role("button", name="Next episode").press("Enter")
    page.get_by_role("heading", name=f"Episode {order[1]}").wait_for()


def test_features_are_drawn_apart_and_toggled(page: Page) -> None:
    shown(page, "dataset/building/episode/5")
    plots = page.locator("#episode svg[role=img]")
    plots.nth(5).wait_for()
    assert plots.count() == 6
    page.get_by_role("checkbox", name="Show hour").uncheck()
    assert plots.count() == 5 and "hour over" not in " ".join(plots.evaluate_all("all => all.map(each => each.ariaLabel)"))
    choices = page.get_by_role("img", name="heating over")
    assert "heat" in choices.inner_html() and "hours since 2026-01-01" in choices.get_attribute("aria-label")
    page.get_by_role("checkbox", name="Time on the axis").uncheck()
    page.get_by_role("img", name="heating over step").wait_for()
    page.keyboard.press("n")
    page.get_by_role("img", name="heating over step").wait_for()
    assert page.get_by_role("checkbox", name="Show hour").is_checked() is False


def test_a_condition_finds_episodes_and_a_wrong_one_is_told(page: Page, server: ReportServer) -> None:
    shown(page, "dataset/building")
    condition = page.get_by_role("searchbox", name="Condition", exact=True)
    condition.fill("eps_id in ('episode-0007', 'episode-0009')")
    condition.press("Enter")
    page.get_by_text("2 of 60 episodes meet the condition.").wait_for()
    assert page.get_by_role("region", name="episodes").locator("tbody tr").count() == 2
    data = f"{server.live.root.path}/building"
    where = """'where=eps_id in ('"'"'episode-0007'"'"', '"'"'episode-0009'"'"')'"""
    page.get_by_text(f"offline prune {data} {data}-kept -s {where}", exact=True).wait_for()
    assert page.get_by_role("button", name="Copy").count() == 1
    condition = page.get_by_role("searchbox", name="Condition", exact=True)
    condition.fill("return > 0")
    condition.press("Enter")
    page.get_by_text("0 of 60 episodes meet the condition.").wait_for()
    assert page.get_by_role("region", name="episodes").count() == 0
    page.get_by_role("combobox", name="Condition on").select_option("steps")
    page.get_by_role("searchbox", name="Condition", exact=True).fill("obs[9] >")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_role("alert").wait_for()
    page.get_by_role("searchbox", name="Condition", exact=True).fill("")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("Every episode opens.").wait_for()


def test_an_episode_is_marked_and_a_pruning_drops_it(page: Page, server: ReportServer) -> None:
    root = Path(server.live.root.path)
    shown(page, "dataset/building/episode/5")
    page.get_by_role("button", name="Mark as bad").wait_for()
    page.keyboard.press("m")
    page.get_by_role("button", name="Marked as bad").wait_for()
    page.get_by_role("region", name="episodes").get_by_text("✗ bad").wait_for()
    assert [each.eps_id for each in read_marks(Location.of(str(root / "building"))).marks] == ["episode-0005"]
    assert offline.prune(root / "building", output=root / "good", marked="drop").result.dropped == {"marked": 1}
    page.get_by_role("button", name="Marked as bad").click()
    page.get_by_role("button", name="Mark as bad").wait_for()
    assert read_marks(Location.of(str(root / "building"))).marks == []


def test_a_policy_is_drawn_beside_the_actions(page: Page) -> None:
    shown(page, "dataset/building/episode/5")
    page.get_by_role("combobox", name="Compare with a policy").select_option("policy/best")
    page.get_by_text("It does what was done at").wait_for()
    assert page.locator("#episode .legend", has_text="greedy").count() == 1
    page.get_by_role("region", name="episodes").get_by_role("button", name="episode").click()
    page.get_by_role("button", name="Next episode").click()
    page.get_by_role("heading", name="Episode episode-0006").wait_for()
    page.get_by_text("It does what was done at").wait_for()


def test_frames_follow_the_step(page: Page) -> None:
    shown(page, "dataset/camera/episode/1")
    canvas = page.get_by_role("img", name="Recorded frame")
    canvas.wait_for()
    slider = page.get_by_role("slider", name="Step")
    before = canvas.screenshot()
    slider.focus()
    slider.press("End")
    assert canvas.screenshot() != before


def test_seeds_are_a_band_smoothed_and_on_a_log_axis(page: Page) -> None:
    shown(page, "experiments")
    page.get_by_role("combobox", name="Curves").select_option("loss")
    page.get_by_role("checkbox", name="Seeds as bands").check()
    page.locator("main figure path.band").nth(1).wait_for()
    assert page.locator("main figure path.band").count() == 2
    assert any("3 seeds" in each for each in page.locator("main figure .legend li").all_inner_texts())
    rough = page.locator("main figure path:not(.band)").first.get_attribute("d")
    page.get_by_role("combobox", name="Smoothing").select_option("0.97")
    page.get_by_role("checkbox", name="Log axis").check()
    page.get_by_text("loss (log)").wait_for()
    assert page.locator("main figure path:not(.band)").first.get_attribute("d") != rough
    page.get_by_text("Their parameters, where they differ").click()
    rows = page.get_by_role("region", name="differing parameters").locator("tbody tr td:first-child").all_inner_texts()
    assert {"seed", "optimizer.learning_rate"} <= set(rows)
    assert "The loss is NaN at update 40" in page.locator("main").inner_text()


def test_a_policy_tells_what_made_it_and_who_refused_it(page: Page) -> None:
    shown(page, "policy/policy%2Fbest")
    said = page.locator("main").inner_text()
    for words in ("offline train building", "This log cannot tell.", "Promote iql", "Evaluation in CartPole-v1", "Estimate on"):
        assert words in said, words
    assert max(map(said.index, ("Promote iql", "Evaluation in", "Estimate on"))) < said.index("fingerprint"), "verdicts first"


def test_a_box_of_the_lineage_opens_its_page(page: Page) -> None:
    shown(page, "lineage")
    page.locator("main svg").get_by_role("link", name="building version 1").click()
    page.get_by_role("heading", name="Episodes of version 1").wait_for()


def test_all_that_can_be_clicked_has_a_name_and_is_reached_by_tab(page: Page) -> None:
    for part in PARTS:
        shown(page, part)
        page.locator("main table, main svg").first.wait_for()
        page.evaluate("document.activeElement.blur()")
        wanted = page.evaluate(CLICKED)
        assert "" not in wanted, (part, wanted)
        for _ in range(2 * len(wanted) + 10):
            page.keyboard.press("Tab")
            page.evaluate("document.activeElement.dataset.reached = 1")
            if page.evaluate(CLICKED) == []:
                break
        assert page.evaluate(CLICKED) == [], part


def test_a_page_without_its_server_says_so_and_stays(browser: Browser, whole: Path) -> None:
    with browser.new_context() as context, server_of(whole) as server:
        opened = context.new_page()
        opened.goto(server.address)
        opened.locator("main h2").first.wait_for()
        server.stop()
        opened.get_by_text("the server does not answer: this page is as it was").wait_for()
        assert opened.locator("main h2").count() > 1
