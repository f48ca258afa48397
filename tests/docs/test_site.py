"""The site builds without a warning, its links hold, and no other host is asked for anything when it is read.

In a browser: a search finds what is meant, and what is copied of a block of commands can be pasted into a shell.
"""

from __future__ import annotations

import functools
import http.server
import itertools
import os
import re
import runpy
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from markdown_it import MarkdownIt

from tests.chromium import MARKS, browser
from tests.docs.blocks import blocks
from tests.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]

ROOT = Path(__file__).parents[2]
FRONT_DOORS = ["README.md", "deployments/README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
ON_THE_FORGE = [*FRONT_DOORS, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""What a browser fetches by itself. A link that a reader may follow is another thing."""
REPOSITORY = "https://github.com/example/offline"
"""Where the tested site says that its code is: a host that the theme's script asks for stars and releases, if it may."""
FIRST = {
    "batch size": "learning.html",
    "confidence interval": "estimate.html",
    "csv": "import.html",
    "custom environment": "customising.html",
    "d3rlpy": "from-d3rlpy.html",
    "gpu": "tuning.html",
    "install": "index.html",
    "learning rate": "learning.html",
    "lerobot": "from-lerobot.html",
    "missing values": "import.html",
    "onnx": "export.html",
    "replay buffer": "learning.html",
    "resume": "learning.html",
    "rllib": "rllib.html",
    "roll back": "registry.html",
    "s3": "storage.html",
    "wandb": "deploying.html",
}
"""The page that a search for these words means."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--config-file",
            str(ROOT / "mkdocs.yml"),
            "--site-dir",
            str(folder),
        ],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "REPOSITORY_URL": REPOSITORY},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return folder


@pytest.mark.slow
def test_all_pages_are_there_and_so_are_those_that_lie_elsewhere(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file()
    for page in ("deploying", "contributing", "changelog", "results/2026-11-21-learning"):
        assert (site / f"{page}.html").is_file()


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        outside = [url for url in _loaded(page) if re.match(r"(https?:)?//", url)]
        assert not outside, f"{page.relative_to(site)} loads {outside}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import\s*)['\"]?(https?:)?//", sheet.read_text()), sheet


@pytest.mark.slow
def test_the_reference_has_what_docstrings_and_parameters_say(site: Path) -> None:
    expert = (site / "reference" / "stages" / "train_expert.html").read_text()
    assert "offline_core.train_expert" in expert and "Raises" in expert and "rollouts_per_iteration" in expert
    parameters = (site / "reference" / "parameters.html").read_text()
    assert "updates_per_iteration" in parameters and "Steps per update, over all learners." in parameters


@pytest.mark.parametrize("page", ON_THE_FORGE)
def test_relative_links_hold_on_the_forge_too(page: str) -> None:
    home = ROOT / page
    for target, _, anchor in (link.partition("#") for link in _links(home.read_text()) if not re.match(r"\w+:", link)):
        found = (home.parent / target).resolve() if target else home
        assert found.exists(), f"{page} links to {target}, which is not there"
        assert not anchor or anchor in _anchors(found.read_text()), f"{page} links to {target}#{anchor}: no such heading"


@pytest.fixture
def page(site: Path, browser: Browser) -> Iterator[Page]:
    """The first page of the site, from a server of its own; what it asks of others ends the test."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asked: list[str] = []
        opened = browser.new_page(viewport={"width": 1400, "height": 900})
        opened.on("request", lambda request: asked.append(request.url))
        home = f"http://127.0.0.1:{server.server_port}/"
        opened.goto(f"{home}index.html")
        yield opened
        opened.close()
        server.shutdown()
    assert not [url for url in asked if not url.startswith((home, "data:"))]


@pytest.mark.slow
class TestInABrowser:
    pytestmark = MARKS

    def test_a_search_shows_the_page_first_that_is_meant(self, page: Page) -> None:
        first_pages = {}
        words = page.locator(".md-search__input")
        words.focus()  # the index is loaded once
        for query in FIRST:
            page.evaluate("document.querySelector('.md-search-result__list').replaceChildren()")
            words.fill(query)
            words.dispatch_event("keyup")
            first = page.locator(".md-search-result__item a").first
            first.wait_for(state="attached")
            first_pages[query] = first.evaluate("(link) => link.pathname.slice(1)")
        assert first_pages == FIRST

    def test_the_scheme_is_switched_and_stays_on_the_next_page(self, page: Page) -> None:
        scheme = "document.body.getAttribute('data-md-color-scheme')"
        page.locator("label[title=Light]:visible, label[title^='Light or dark']:visible").click()
        page.locator("label[title=Light]:visible").click()
        page.wait_for_function(f"{scheme} === 'slate'")
        page.goto(page.url.replace("index", "tutorial"))
        page.wait_for_function(f"{scheme} === 'slate'")

    def test_each_page_has_the_version_and_the_repository(self, page: Page) -> None:
        assert page.locator(".md-copyright").inner_text().strip().endswith(_version())
        assert page.locator(".md-header__source a").get_attribute("href") == REPOSITORY

    @pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "docs").glob("*.md")))
    def test_copied_commands_can_be_pasted_into_a_shell(self, page: Page, name: str) -> None:
        page.goto(page.url.replace("index", name))
        copied = page.locator(".language-console code").evaluate_all(COPIED)
        wanted = [block for block in blocks(f"docs/{name}.md") if block.language == "console"]
        for text, block in zip(copied, wanted, strict=True):
            assert [line for line in text.splitlines() if line] == _lines(block.text), block


COPIED = """(codes) => codes.map((code) => {
  code.setAttribute("data-md-copying", "");
  const text = code.innerText;
  code.removeAttribute("data-md-copying");
  return text;
})"""
"""What the theme's copy button takes of each block."""


def _lines(console: str) -> list[str]:
    """The lines of commands, without their prompts; a line that ends with a backslash goes on in the next one."""
    lines, goes_on = [], False
    for line in console.splitlines():
        if goes_on or line.startswith("$ "):
            lines.append(line.removeprefix("$ "))
            goes_on = line.endswith("\\")
    return lines


def _version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _loaded(page: Path) -> list[str]:
    urls: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = dict(attrs)
            if values.get("rel") != "canonical" and (url := values.get(LOADED.get(tag, ""))):
                urls.append(url)

    Parser().feed(page.read_text())
    return urls


def _links(text: str) -> list[str]:
    inline = (token for block in MarkdownIt("gfm-like", {"linkify": False}).parse(text) for token in block.children or [])
    return [str(token.attrs[name]) for token in inline for name in ("href", "src") if name in token.attrs]


def _anchors(text: str) -> set[str]:
    blocks = MarkdownIt().parse(text)
    headings = [after.content for block, after in itertools.pairwise(blocks) if block.type == "heading_open"]
    named = re.findall(r'<a id="([^"]+)">', text)
    return {*named, *(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)}


def test_pictures_are_those_that_the_script_draws() -> None:
    path = ROOT / "docs" / "drawings.py"
    drawn = runpy.run_path(str(path))["drawings"]()
    for name, text in drawn.items():
        assert (ROOT / "docs" / "images" / name).read_text() == text, f"{name}: run 'python docs/drawings.py'"
