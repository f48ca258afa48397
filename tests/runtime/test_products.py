"""Products by either library: equal numbers, and one choice on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.runtime import products
from offline_core.runtime.torch_settings import bfloat16_products

SHAPES = [(256, 256, 256), (2048, 64, 3), (7, 5, 11), (1, 4, 2), (300, 14, 300), (64, 1, 16)]


@pytest.fixture(autouse=True)
def chosen_anew() -> Iterator[None]:
    products.one_dnn.cache_clear()
    yield
    products.one_dnn.cache_clear()


@pytest.fixture(params=["mkl", "onednn"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(products.CHOICE, request.param)
    return str(request.param)


@pytest.mark.parametrize(("rows", "inner", "columns"), SHAPES)
def test_products_are_right_in_any_order_in_memory(library: str, rows: int, inner: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(rows, inner, generator=generator), torch.randn(columns, inner, generator=generator).t()
    bias = torch.randn(columns, generator=generator)
    exact = a.double() @ b.double()
    for one, other in [(a, b), (a.t().contiguous().t(), b.contiguous())]:
        torch.testing.assert_close(products.product(one, other).double(), exact, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(products.product(one, other, bias).double(), exact + bias, rtol=1e-4, atol=1e-4)


def test_products_in_bfloat16_are_left_to_torch(library: str) -> None:
    a = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
    with bfloat16_products():
        assert torch.equal(products.product(a, a), torch.mm(a, a))


def test_what_a_machine_chose_is_kept_and_read_by_the_next_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(products.CHOICE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for measured, chosen in [(3.0, True), (0.5, True)]:  # the second measurement is not made
        products.one_dnn.cache_clear()
        monkeypatch.setattr(products, "gain", lambda multiply, gain=measured: gain)
        assert (products.one_dnn() is not None) is chosen


def test_a_home_that_cannot_be_written_to_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv(products.CHOICE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert products.one_dnn() is products.one_dnn()


def test_another_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(products.CHOICE, "openblas")
    with pytest.raises(ConfigError, match="OFFLINE_PRODUCTS is 'openblas': set it to onednn or mkl"):
        products.one_dnn()
