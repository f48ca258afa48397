"""What is written from the stages and checked in: `python -m tests.written` writes it, and a test holds that it is fresh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from offline_core.runtime.stage import INDEX, Stage

ROOT = Path(__file__).parents[1]
CORE = ROOT / "offline_core"


def stages() -> dict[str, Stage[..., Any]]:
    """All stages of the core by name, in the order of the pipeline; imports their modules."""
    found: dict[str | None, list[Stage[..., Any]]] = {}
    for path in sorted(CORE.rglob("*.py")):
        if "\n@stage(" in path.read_text():
            module = ".".join(path.relative_to(CORE).with_suffix("").parts)
            for each in vars(__import__(f"offline_core.{module}", fromlist=["*"])).values():
                if isinstance(each, Stage) and each.function.startswith(f"{module}:"):
                    found.setdefault(each.after, []).append(each)
    ordered: dict[str, Stage[..., Any]] = {}

    def follow(name: str | None) -> None:
        for each in sorted(found.pop(name, ()), key=lambda stage: stage.name):
            ordered[each.name] = each
            follow(each.name)

    follow(None)
    assert not found, f"There is no stage {', '.join(map(str, found))} for others to follow."
    return ordered


def index() -> str:
    """The list of stages that is read without importing them."""
    return json.dumps([each.as_json() for each in stages().values()], indent=1, ensure_ascii=False) + "\n"


def tasks() -> str:
    """The types of the tasks: those of the stages."""
    lines = ['"""Written by `python -m tests.written`."""', ""]
    for each in stages().values():
        module, _, name = each.function.partition(":")
        lines.append(f"from offline_core.{module} import {name} as {name}")
    return "\n".join([*lines[:2], *sorted(lines[2:])]) + "\n"


WRITTEN = {INDEX: index, ROOT / "tasks" / "stages.pyi": tasks}
"""What makes each file."""


def main() -> None:
    """Writes all files."""
    for path, made in WRITTEN.items():
        path.write_text(made())


if __name__ == "__main__":
    main()
