"""Sizes with units."""

from __future__ import annotations

import pytest

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.errors import ConfigError
from offline_core.learning.config import DataConfig
from offline_core.runtime.config import parse


@pytest.mark.parametrize(
    ("given", "wanted"), [(2**20, 2**20), ("1 MiB", 2**20), ("1.5GB", 1_500_000_000), ("131072", 131_072), ("64 KiB", 2**16)]
)
def test_a_size_is_a_number_or_has_a_unit(given: object, wanted: int) -> None:
    assert parse(FilesConfig, {"max_bytes_per_file": given}) == FilesConfig(max_bytes_per_file=wanted)


@pytest.mark.parametrize(
    ("wrong", "message"), [("128 parsecs", "such as 128 MiB"), ("1 KiB", "65536"), ("", "such as 128 MiB")]
)
def test_what_is_no_size_is_refused_in_words(wrong: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(FilesConfig, {"max_bytes_per_file": wrong})


def test_a_size_may_have_other_values_beside_it() -> None:
    assert [parse(DataConfig, {"resident_bytes": each}).resident_bytes for each in ("rows", "1 GiB")] == ["rows", 2**30]
