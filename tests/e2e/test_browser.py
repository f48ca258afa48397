"""What people see in the browser: every form, filled in and refusing; runs started from forms; cards with their pictures."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from deployments.definitions import definitions, flow_of
from tests.chromium import CHROMIUM, SCREENSHOTS
from tests.e2e.orchestra import Orchestra
from tests.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

OFFLINE_COMMAND = str(Path(sys.executable).with_name("offline"))
OFFLINE = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
ASKED_OF_THE_MAKER = {"sr-client-cfg.amplitude.com"}
"""The one request that the new UI makes on every page; here it finds no such host, and nothing is missing for that."""

PICTURE = """document.querySelector('img[src^="data:image/png"]')"""
GRAPH = """document.querySelector('svg[aria-roledescription="flowchart-v2"]')"""

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DOCUMENTS = bool(os.environ.get("OFFLINE_SCREENSHOTS"))
"""Whether the pictures of the documents are made anew."""
MAX_SCREENSHOT_BYTES = 200_000
MOST_PIXELS, MOST_PIXELS_SHORT = 6_000, 1_300
"""Of the page with a form, whole or short."""
MOST_WRONG = 8
"""Fields of one form that are wrong in turn; a short form has fewer."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # the browser's driver is not ours
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium; 'apt install chromium'"),
]

FORMS = [
    f"{flow_of(each['entrypoint']).name}/{each['name']}"
    for each in definitions()
    if "-smoke" in each["name"] or each["name"].endswith("-short")
]
"""The whole form and the short one of each flow; other profiles are the whole form with other values."""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A browser that reaches this machine only; fails at the end if it asked any other host."""
    sync_api = pytest.importorskip("playwright.sync_api")
    asked: set[str | None] = set()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*OFFLINE])
        opened = browser.new_page(viewport={"width": 1280, "height": 1000})
        opened.set_default_timeout(1000 * PATIENCE_SECONDS)
        opened.on("request", lambda request: asked.add(urlsplit(request.url).hostname))
        yield opened
        browser.close()
    assert asked - {"127.0.0.1", None} <= ASKED_OF_THE_MAKER


@pytest.fixture(scope="module")
def chain(orchestra: Orchestra, page: Page) -> str:
    """A run of the whole chain that was submitted from its form, and completed."""
    return submitted(page, orchestra, "expert-to-policy/expert-to-policy-smoke")


@pytest.mark.parametrize("name", FORMS)
def test_a_form_shows_what_would_run_and_refuses_what_cannot(orchestra: Orchestra, page: Page, name: str) -> None:
    deployment = open_form(page, orchestra, name)
    assert wanted_values(deployment)
    most = MOST_PIXELS_SHORT if name.endswith("-short") else MOST_PIXELS
    wait_until(lambda: page_height(page) <= most, what=f"a page of at most {most} pixels")  # editors shrink as they load

    before = runs_of(orchestra, deployment["id"])
    refused(page)
    assert page.url.split("?")[0].endswith("/run"), "nothing was submitted"
    assert runs_of(orchestra, deployment["id"]) == before


@pytest.mark.parametrize("name", [name for name in FORMS if "-smoke" in name])
def test_a_run_submitted_from_its_form_completes(orchestra: Orchestra, page: Page, name: str) -> None:
    """In the order of prefect.yaml, in which each finds what it reads."""
    submitted(page, orchestra, name)


def test_a_card_is_shown_with_its_picture_and_its_lineage(orchestra: Orchestra, page: Page, chain: str) -> None:
    cards = {each["key"]: each for each in artifacts(orchestra, chain) if each["key"]}
    assert len(cards) == 7
    for card in cards.values():
        page.goto(f"{orchestra.ui_url}/v2/artifacts/artifact/{card['id']}")
        if "data:image/png" in card["data"]:  # a curve of a single point is a number
            page.wait_for_function(f"{PICTURE}?.naturalWidth > 0 && {PICTURE}.clientWidth > 400")
        page.wait_for_function(f"{GRAPH}?.textContent.includes('train expert')")
    screenshot(page, orchestra, f"/v2/artifacts/artifact/{cards['expert-to-policy-card']['id']}", "card", height=1250)


def test_the_address_that_a_run_prints_shows_it_in_the_ui_that_the_server_prefers(orchestra: Orchestra, page: Page) -> None:
    ended = orchestra.run([OFFLINE_COMMAND, "check", "runs/nowhere"], code=1)
    printed = re.search(r"View at (\S+)", ended.stdout + ended.stderr)
    assert printed
    page.goto(orchestra.ui_url)
    assert page.url.startswith(f"{orchestra.ui_url}/v2")
    page.goto(printed[1])
    page.get_by_text("Switch to V1 UI").wait_for()
    page.get_by_text("check nowhere", exact=True).first.wait_for()


def test_the_pictures_of_the_documents(orchestra: Orchestra, page: Page, chain: str) -> None:
    deployment = orchestra.ask("GET", "/deployments/name/train/train-short")
    for scheme in ("dark", "light"):  # the documents have the last
        page.emulate_media(color_scheme=scheme)
        screenshot(page, orchestra, f"/v2/deployments/deployment/{deployment['id']}/run", "form", height=1250)
        screenshot(page, orchestra, "/v2/deployments", "deployments", height=1000)


def test_a_wrong_condition_fails_the_run_before_its_first_stage(orchestra: Orchestra, fresh_root: str) -> None:
    parameters = {"root": fresh_root, "where": "nope > 3"}
    run = orchestra.submit("expert-to-policy/expert-to-policy-short", parameters)
    orchestra.wait_for(run, "FAILED")
    assert "names the column 'nope'" in orchestra.flow_run(run)["state"]["message"]
    assert not Path(fresh_root).exists()


def open_form(page: Page, orchestra: Orchestra, name: str) -> dict[str, Any]:
    """Opens the form of a deployment, and waits until it shows the parameters with their values. Returns the deployment."""
    deployment: dict[str, Any] = orchestra.ask("GET", f"/deployments/name/{name}")
    page.goto(f"{orchestra.ui_url}/v2/deployments/deployment/{deployment['id']}/run")
    schema = deployment["parameter_openapi_schema"]
    for parameter in schema["properties"].values():
        title = parameter.get("title") or schema["definitions"][parameter["$ref"].rpartition("/")[2]]["title"]
        page.locator("form").get_by_text(f"{title} (Optional)", exact=True).first.wait_for()
    wanted = wanted_values(deployment)
    wait_until(lambda: not not_shown(page, wanted), what=f"{wanted} in the form of {name}")
    return deployment


def page_height(page: Page) -> int:
    """Pixels of the whole page, at the width of the window."""
    found: int = page.evaluate("Math.max(...[...document.querySelectorAll('body, body *')].map(each => each.scrollHeight))")
    return found


def submitted(page: Page, orchestra: Orchestra, name: str) -> str:
    """Submits the form of a deployment as it is, and waits until the run is completed. Returns the run's id."""
    deployment = open_form(page, orchestra, name)
    before = runs_of(orchestra, deployment["id"])

    def accepted() -> bool:
        with page.expect_response(lambda answer: answer.url.endswith("/create_flow_run")) as answer:
            page.get_by_role("button", name="Submit", exact=True).click()
        assert answer.value.ok or answer.value.status == 503, answer.value.text()
        return answer.value.ok  # else SQLite is busy; the page does not ask again by itself, but its reader can

    wait_until(accepted, what=f"the form of {name} to be accepted")
    [run] = runs_of(orchestra, deployment["id"]) - before
    orchestra.wait_for(run, "COMPLETED")
    return run


def runs_of(orchestra: Orchestra, deployment: str) -> set[str]:
    """The ids of the runs that somebody asked for; those of a schedule come by themselves."""
    asked = {"flow_runs": {"deployment_id": {"any_": [deployment]}}}
    return {run["id"] for run in orchestra.ask("POST", "/flow_runs/filter", asked) if not run["auto_scheduled"]}


def artifacts(orchestra: Orchestra, run: str) -> list[dict[str, Any]]:
    return list(orchestra.ask("POST", "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}}))


def wanted_values(deployment: dict[str, Any]) -> list[str | float]:
    """Every text and number that a run would have: those of the deployment, and what it leaves at the default."""
    schema, given = deployment["parameter_openapi_schema"]["properties"], deployment["parameters"]
    return leaves([given.get(name, parameter.get("default")) for name, parameter in schema.items()])


def leaves(value: Any) -> list[str | float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value is None or isinstance(value, bool) else [value]


def not_shown(page: Page, values: list[str | float]) -> list[str | float]:
    """Those that are in no field, no choice and no JSON editor of the form."""
    form = page.locator("form")
    fields: list[str] = form.locator("input, textarea").evaluate_all("fields => fields.map(field => field.value)")
    editors = "\n".join(form.locator(".cm-line").all_inner_texts())
    texts = {*fields, *form.inner_text().splitlines()}
    numbers = {float(text) for text in [*fields, *re.findall(r"-?\d[-+.e\d]*", editors)] if is_number(text)}
    return [value for value in values if not (value in texts or value in numbers or (str(value) in editors))]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def refused(page: Page) -> None:
    """Types into each number with a bound what it does not take, submits, and waits until the form says so.

    Forms without one have texts, which the run looks at first.
    """
    form = page.locator("form")
    for field in form.locator('input[type="number"][min]').all()[:MOST_WRONG]:
        right, before = field.input_value(), form.inner_text().splitlines()
        field.fill("-1e30")
        page.get_by_role("button", name="Submit", exact=True).click()

        def says_so(field: Locator = field, before: list[str] = before) -> bool:
            new = [line for line in form.inner_text().splitlines() if line not in before]  # editors may appear meanwhile
            new.append(str(field.evaluate("field => field.validationMessage")))
            return any("Value must be" in line or "is not valid" in line for line in new)

        wait_until(says_so, what=f"what the form has to say of {field}")
        field.fill(right)


def screenshot(page: Page, orchestra: Orchestra, path: str, name: str, *, height: int) -> None:
    """What the page looks like; kept as docs/images/NAME.png if DOCUMENTS, and in the folder SCREENSHOTS."""
    page.set_viewport_size({"width": 1280, "height": height})
    page.goto(f"{orchestra.ui_url}{path}")
    page.wait_for_load_state("networkidle")
    page.evaluate("() => Promise.allSettled(document.getAnimations().map(animation => animation.finished))")
    data = page.screenshot()
    assert len(data) <= MAX_SCREENSHOT_BYTES
    if DOCUMENTS and name in ("card", "form"):
        IMAGES.mkdir(exist_ok=True)
        Image.open(io.BytesIO(data)).quantize().save(IMAGES / f"{name}.png", optimize=True)
    if SCREENSHOTS:
        scheme = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'")
        (Path(SCREENSHOTS) / f"{name}-{scheme}.png").write_bytes(data)
