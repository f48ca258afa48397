"""Cards of what lies in a bucket: links in Prefect that a browser can follow, and none in the files that outlive them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.store.location import Location
from offline_core.data.store.stores import LINK_SECONDS
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.reporting.card import Card
from tasks import artifacts
from tasks.stages import prune
from tests.data.datasets.factories import episode, write_dataset
from tests.object_storage.conftest import SETTINGS


def links_in(markdown: str) -> dict[str, str]:
    """Addresses by their text, as it is meant."""
    return {re.sub(r"\\(.)", r"\1", text): link for text, link in re.findall(r"^- \[(.*)\]\(<(.*)>\)$", markdown, re.MULTILINE)}


@pytest.fixture
def artifact(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What Prefect shows of a dataset that was pruned into the bucket."""
    output = f"{bucket}/a_b/pruned"
    source = write_dataset(tmp_path / "source", [episode(i) for i in range(8)])
    told: list[str] = []
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda markdown, **_: told.append(markdown))
    prune.fn(PruningConfig(keep_top_fraction=0.5), dataset=source.location.uri, output=output)
    [text] = told
    return text


def test_links_lead_to_the_card_its_picture_and_the_manifest(artifact: str, bucket: str) -> None:
    links = links_in(artifact)
    root = f"{bucket}/a_b/pruned"
    assert list(links) == [
        f"{root}/_cards/000001.png",
        f"{root}/_cards/000001.html",
        f"{root}/_cards/000001.md",
        f"{root}/_versions/000001.json",
    ]
    for (uri, link), kind in zip(links.items(), ("image/png", "text/html", "text/markdown", "application/json"), strict=True):
        answer = httpx.get(link)  # by somebody without credentials
        assert answer.status_code == 200 and answer.content == Location.of(uri).read()
        assert answer.headers["content-type"].partition(";")[0] == kind, "a browser shows it"
        query = parse_qs(urlsplit(link).query)
        assert int(query["X-Amz-Expires"][0]) == LINK_SECONDS == 24 * 3600
        assert "X-Amz-Security-Token" not in query and SETTINGS["AWS_SECRET_ACCESS_KEY"] not in link
    assert "These links open without a login for 24 hours." in artifact


def test_what_is_kept_with_the_data_has_no_link(artifact: str, bucket: str) -> None:
    """But the picture's name, as on disks."""
    card = Location.of(f"{bucket}/a_b/pruned/_cards/000001.md").read().decode()
    assert "](000001.png)" in card and "http" not in card and "X-Amz" not in card
    place = Location.of(bucket)
    assert not [name for name in place.files() if b"X-Amz" in place.child(name).read()]


def test_links_of_a_policy(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = EnvironmentSpec(id="CartPole-v1")
    save_policy(Policy(*spaces_of(environment)), f"{bucket}/policy", operation=Operation(name="x"), environment=environment)
    told: list[str] = []
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda markdown, **_: told.append(markdown))
    artifacts.publish(Card("Title", about=(f"{bucket}/policy", None)), key="k")
    [(uri, link)] = links_in(told[0]).items()
    assert uri == f"{bucket}/policy/policy.json" and httpx.get(link).json()["operation"]["name"] == "x"
