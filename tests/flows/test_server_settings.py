"""Which server is set, compared with what Prefect itself finds in the same files and variables."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.settings import Settings

from flows.server_settings import api_url, ui_url
from offline_core.errors import ConfigError

URL = "http://server.example/api"
OTHER = "http://other.example/api"
PROFILES = f'active = "a"\n[profiles.a]\nPREFECT_API_URL = "{URL}"\n[profiles.b]\nPREFECT_UI_URL = "http://ui.example"\n'


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_UI_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("files", "variables", "url"),
    [
        ({}, {}, None),
        ({}, {"PREFECT_API_URL": URL}, URL),
        ({"home/profiles.toml": PROFILES}, {}, URL),
        ({"home/profiles.toml": PROFILES}, {"PREFECT_API_URL": ""}, None),
        ({"home/profiles.toml": PROFILES}, {"PREFECT_API_URL": OTHER}, OTHER),
        ({"home/profiles.toml": PROFILES}, {"PREFECT_PROFILE": "b"}, None),
        ({"home/profiles.toml": PROFILES}, {"PREFECT_PROFILE": "none"}, None),
        ({"elsewhere.toml": PROFILES}, {"PREFECT_PROFILES_PATH": "elsewhere.toml"}, URL),
        ({"elsewhere.toml": PROFILES, ".env": "PREFECT_PROFILES_PATH=elsewhere.toml\n"}, {}, URL),
        ({"elsewhere.toml": PROFILES, "prefect.toml": 'profiles_path = "elsewhere.toml"\n'}, {}, URL),
        ({"elsewhere.toml": PROFILES, "pyproject.toml": '[tool.prefect]\nprofiles_path = "elsewhere.toml"\n'}, {}, URL),
        ({".env": f"PREFECT_API_URL={URL}\n", "prefect.toml": f'[api]\nurl = "{OTHER}"\n'}, {}, URL),
        ({"prefect.toml": f'api.url = "{URL}"\n', "pyproject.toml": f'[tool.prefect.api]\nurl = "{OTHER}"\n'}, {}, URL),
        (
            {"pyproject.toml": f'[tool.prefect]\napi.url = "{URL}"\n', "home/profiles.toml": PROFILES},
            {"PREFECT_PROFILE": "b"},
            URL,
        ),
        ({"pyproject.toml": "[tool.other]\nprefect = 1\n"}, {}, None),
    ],
)
def test_it_is_the_one_that_prefect_finds(
    files: dict[str, str], variables: dict[str, str], url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert api_url() == url
    assert (Settings().api.url or None) == url


def test_the_address_of_the_ui_is_a_setting_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ui_url() is None
    (tmp_path / "prefect.toml").write_text('ui_url = "http://ui.example"\n')
    assert ui_url() == "http://ui.example" == Settings().ui_url


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "prefect.toml").write_text("api url")
    with pytest.raises(ConfigError, match=r"prefect\.toml cannot be read, in which Prefect may find its server"):
        api_url()
