"""The site builds without a warning, its links hold, and nobody else is asked for anything when it is read."""

from __future__ import annotations

import itertools
import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
FRONT_DOORS = ["README.md", "deployments/README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
ON_THE_FORGE = [*FRONT_DOORS, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""What a browser fetches by itself. A link that somebody may follow is another thing."""


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
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
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
    stages = (site / "reference" / "stages.html").read_text()
    assert "offline_core.train_expert" in stages and "Raises" in stages
    parameters = (site / "reference" / "parameters.html").read_text()
    assert "updates_per_iteration" in parameters and "Steps per update, over all learners." in parameters


@pytest.mark.parametrize("page", ON_THE_FORGE)
def test_relative_links_hold_on_the_forge_too(page: str) -> None:
    home = ROOT / page
    for target, _, anchor in (link.partition("#") for link in _links(home.read_text()) if not re.match(r"\w+:", link)):
        found = (home.parent / target).resolve() if target else home
        assert found.exists(), f"{page} links to {target}, which is not there"
        assert not anchor or anchor in _anchors(found.read_text()), f"{page} links to {target}#{anchor}: no such heading"


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
