"""Files and settings of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.settings import configs_of, defaults_of, read_values
from flows.stages import prune, train

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefghijkl", "bcdefghijklm", strict=True)
)
TEXTS = [
    "!!python/object/apply:os.system ['touch ran']",
    "!!python/object/new:hostile_code.X []",
    "!!python/name:hostile_code.x",
    "!!python/module:hostile_code",
    "pruning: !!python/object/apply:__import__ [hostile_code]",
    "!include outside/canary",
    "x: !!binary '***'",
    "x: !!int 'x'",
    "x: !!float 'x'",
    "x: !!timestamp 'x'",
    "x: 2026-99-99",
    "x: " + "9" * 10_000,
    "x: 1e" + "9" * 5000,
    "x: 0x" + "f" * 10_000,
    "x: " + ":".join(["59"] * 5000),
    "[" * 1200,
    "{" * 1200,
    "{a: " * 3000,
    "- " * 3000,
    LAUGHS,
    LAUGHS + "pruning: *m",
    LAUGHS + "pruning: {where: *l}",
    "pruning: &x [*x]",
    "pruning: &x {where: *x}",
    "? [a, b]\n: c",
    "? {a: b}\n: c",
    "<<: [1, 2]",
    "<<: *missing",
    "pruning: {<<: {where: x}, where: y}",
    "a: b: c",
    "\t",
    "",
    "null",
    "[]",
    "x",
    "%TAG ! tag:x,2026:\n---\n!x y",
    "--- a\n--- b",
    "\u2028\0",
    "&a " * 100,
    "*" * 1000,
    "pruning: 1",
    "pruning: {where: [1]}",
    "pruning: {filters: [{path: 'x'}]}",
    "pruning: {filters: {path: 'hostile_code:x'}}",
    "pruning: {keep_top_fraction: .nan}",
    "pruning: {keep_top_fraction: -1}",
    "pruning: {columns: " + "x" * 10**6 + "}",
    "training: {optimizer: {max_epochs: 1e308}}",
    "training: {network: {hidden_sizes: [.inf]}}",
    "'\\ud800': 1",
    "pruning: '\\ud800'",
    '{"a": 1',
    '{"a": ' * 5000,
    '{"__class__": "hostile_code.X"}',
    '{"pruning": {"__proto__": 1}}',
]
SETTINGS = [
    "=",
    "a",
    "a.b.c=1",
    ".=1",
    "..=1",
    "pruning=!!python/name:hostile_code.x",
    "pruning=[" + "[" * 1200,
    "a=2026-99-99",
    "a=*x",
]


def inputs(folder: Path) -> dict[str, Callable[[], Any]]:
    calls: dict[str, Callable[[], Any]] = {}

    def call(settings: list[str], file: str | None) -> Any:
        values = read_values(settings, file)
        return [configs_of(defaults_of(flow), {}, values) for flow in (prune, train)]

    for number, text in enumerate(TEXTS):
        file = folder / f"{number}.yaml"
        file.write_text(text)
        calls[f"file {number} {text[:40]!a}"] = lambda file=file: call([], str(file))  # type: ignore[misc]
    for setting in SETTINGS:
        calls[f"setting {setting[:40]!a}"] = lambda setting=setting: call([setting], None)  # type: ignore[misc]
    return calls
