"""Matrix products by the faster of the two libraries in Torch's wheel for processors, as this machine measures them.

On processors of AMD, MKL takes slower ways; oneDNN multiplies up to twice as fast there, in the same precision. Which one is
faster is measured once a machine, in milliseconds, and kept in a file: other last bits in each run would be a surprise.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from offline_core.errors import ConfigError

SMALLEST = 2**19
"""Multiplications of a product from which oneDNN's call is worth its price."""
NARROW = 16
"""Columns up to which MKL makes the transposed product up to four times as fast, on processors of AMD."""
GAIN = 1.25
"""How many times faster oneDNN has to be: what is measured twice should be decided once."""
CHOICE = "OFFLINE_PRODUCTS"
"""A variable of the environment: `onednn` or `mkl`, in place of a measurement."""


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a @ b + bias, on a processor.

    Arguments:
        a, b: (M, K) and (K, N), in any order in memory.
        bias: (N,).
    """
    rows, columns = a.shape[0], b.shape[1]
    is_large = rows * a.shape[1] * columns >= SMALLEST and a.dtype is torch.float32
    if is_large and (multiply := one_dnn()) is not None and _is_exact():
        output: Tensor = multiply(a, b.t(), bias, "none", [], "")
        return output
    if 1 < columns <= NARROW < rows:
        return (torch.mm(b.t(), a.t()) if bias is None else torch.addmm(bias[:, None], b.t(), a.t())).t()
    return torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)


def _is_exact() -> bool:
    """Whether products round nothing: `bfloat16_products` has a way of its own through MKL's."""
    return torch.get_float32_matmul_precision() == "highest"


@functools.cache
def one_dnn() -> Callable[..., Any] | None:
    """Return oneDNN's product, if it is here and faster than MKL's on this machine.

    Raises:
        ConfigError: `OFFLINE_PRODUCTS` names another library.
    """
    multiply = _usable()
    if multiply is None:
        return None
    chosen = os.environ.get(CHOICE)
    if chosen not in (None, "", "onednn", "mkl"):
        raise ConfigError(f"{CHOICE} is {chosen!r}: set it to onednn or mkl, or leave it out.")
    if not chosen:
        kept = _file()
        try:
            chosen = kept.read_text()
        except OSError:
            chosen = _keep(kept, "onednn" if gain(multiply) >= GAIN else "mkl")
    return multiply if chosen == "onednn" else None


def _usable() -> Callable[..., Any] | None:
    """Return the operator, which Torch does not promise to keep, if it is here and right."""
    try:
        multiply: Callable[..., Any] = torch.ops.mkldnn._linear_pointwise
        a, b, bias = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3), torch.ones(4)
        plain = multiply(a, b, bias, "none", [], "")
        transposed = multiply(a.t(), a.t(), None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return None
    right = torch.equal(plain, torch.addmm(bias, a, b.t())) and torch.equal(transposed, a.t() @ a)
    return multiply if right else None


def gain(multiply: Callable[..., Any]) -> float:
    """Return how many times faster than Torch's own product another one is; some 20 milliseconds."""
    a, b, bias = torch.ones(256, 256), torch.ones(256, 256), torch.ones(256)

    def seconds(call: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    with torch.inference_mode():
        pairs = [
            (seconds(lambda: torch.addmm(bias, a, b)), seconds(lambda: multiply(a, b, bias, "none", [], ""))) for _ in range(30)
        ]
    own, other = (min(side) for side in zip(*pairs, strict=True))
    return float(own / other)


def _file() -> Path:
    """Return where the choice for this kind of processor and this Torch is kept."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    what = f"{platform.machine()} {_processor()} {torch.__version__} {torch.get_num_threads()}"
    return folder / "offline-rl-pipeline" / f"products-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("vendor_id", "cpu family", "model", "stepping", "model name")
    return " ".join(dict.fromkeys(line for line in lines if line.partition("\t")[0].strip() in wanted))


def _keep(file: Path, chosen: str) -> str:
    """Write what was chosen, and return what is kept: another process may have been first."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x") as opened:
            opened.write(chosen)
    except FileExistsError:
        return file.read_text() or chosen
    except OSError:
        pass  # a home that cannot be written to: each process measures
    return chosen
