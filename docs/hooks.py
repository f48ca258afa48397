"""What MkDocs does not do by itself: pages of this site that lie elsewhere in the repository.

Each text has one home. deployments/README.md is read on the forge, where it lies, and here under "Deploy"; links between such
files and those of docs/ are the repository's, so that they work on the forge, and are turned into the site's here.

Which pages a search shows first is decided here too, and the version that stands below each page comes from pyproject.toml.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
GUESTS = {
    "deployments/README.md": "deploying.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""From a path in the repository to the page of the site."""
RESULTS = "benchmarks/results"
SEARCH_BOOSTS = {
    "results/": 0.001,
    "changelog.md": 0.001,
    "contributing.md": 0.1,
    "reference/": 0.001,
    "algorithms.md": 0.1,
}
"""How much a word on these pages counts in a search, beside 1 on all others: what explains comes before what lists."""
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    assert config.nav is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.copyright = f"{config.site_name} {project['version']}"
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    for stage in json.loads((ROOT / "offline_core" / "runtime" / "stages.json").read_text()):
        name = stage["function"].partition(":")[2]
        reference[0]["Stages"].append({name: f"reference/stages/{name}.md"})
    results = (page for page in guests().values() if page.startswith("results/") and page.endswith(".md"))
    config.nav[-1]["Project"].append({"Measured": sorted(results, reverse=True)})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in guests().items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    boost = next((boost for start, boost in SEARCH_BOOSTS.items() if page.file.src_uri.startswith(start)), 1)
    page.meta.setdefault("search", {"boost": boost})
    elsewhere = guests()
    home = next((source for source, name in elsewhere.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")

    def of_the_site(match: re.Match[str]) -> str:
        opening, target, anchor, closing = match.groups(default="")
        if ":" in target:
            return match[0]
        source = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        name = elsewhere.get(source, source.removeprefix("docs/") if source.startswith("docs/") else None)
        if name is None:
            return match[0]
        return f"{opening}{posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or '.')}{anchor}{closing}"

    return LINK.sub(of_the_site, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Take the mark away by which the theme's script asks the repository's host for stars and releases."""
    return output.replace(' data-md-component="source"', "")


def guests() -> dict[str, str]:
    results = sorted(path.name for path in (ROOT / RESULTS).iterdir() if path.is_file())
    return GUESTS | {f"{RESULTS}/{name}": f"results/{name}" for name in results}
