"""The pages of the API reference, one a stage: its function, an example that the tests of pages run, and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offline_core.learning.algorithms.registry import algorithms
from offline_core.runtime.stage import Stage

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
EXAMPLES = {
    "train_expert": """\
expert = offline.train_expert("CartPole-v1", output="runs/short-expert", total_steps=20_000)
print(expert.best, expert.metrics["episode_return_mean"])""",
    "record": """\
data = offline.record("runs/expert/best", output="runs/recorded", episodes=20, seed=2)
print(data)""",
    "import_data": """\
data = offline.import_data("data/robot.parquet", output="runs/arm")
print(data.result.counts, data.result.notes)""",
    "convert": """\
table = offline.convert("runs/recording", output="runs/steps", format="table")
print(table.table().select("length", "return").head())""",
    "check": """\
report = offline.check("runs/imported")
print(report.verdict, [finding.rule for finding in report.findings if finding.verdict != "pass"])""",
    "outliers": """\
found = offline.outliers("runs/recording", output="runs/outliers", updates=100)
print([(each.eps_id, each.reason) for each in found.outliers], found.advice)""",
    "prune": """\
good = offline.prune("runs/recording", "return >= 300", output="runs/good")
print(good)""",
    "compact": """\
data = offline.compact("runs/recording", output="runs/compacted")
print(data.paths)""",
    "split": """\
train, held_out = offline.split("runs/recording", output="runs/split", held_out_fraction=0.2)
print(train, held_out)""",
    "merge": """\
data = offline.merge(["runs/imported", "runs/b"], output="runs/merged")
print(data)""",
    "mix": """\
data = offline.mix({"runs/recording": 0.7, "runs/others": 0.3}, output="runs/mixed", steps=2_000)
print(data)""",
    "publish": """\
published = offline.publish("runs/recording", format="delta")  # needs the extra delta
print(published)""",
    "export": """\
exported = offline.export("runs/recording", output="out/lerobot", format="lerobot", arguments={"fps": 50})
print(exported)""",
    "train": """\
run = offline.train(
    "runs/recording",
    output="runs/marwil",
    algorithm="marwil",
    marwil={"beta": 2},
    optimizer={"max_epochs": 2},
)
print(run.best, run.metrics["episode_return_mean"])""",
    "fine_tune": """\
run = offline.train("runs/recording", output="runs/iql", algorithm="iql", optimizer={"max_updates": 100})
better = offline.fine_tune(run, "runs/recording", output="runs/fine-tuned", total_steps=1_000)
print(better.best, better.metrics)""",
    "sweep": """\
sweep = offline.sweep(
    "runs/recording",
    output="runs/sweep",
    grid={"algorithm": ["bc", "marwil"]},
    seeds=2,
    training={"optimizer": {"max_epochs": 1}, "evaluation": {"episodes": 10}},
)
print(sweep.parameters, sweep.table())""",
    "evaluate": """\
result = offline.evaluate("runs/policy/best", episodes=20)
print(result.mean_return, min(result.returns))""",
    "estimate": """\
result = offline.estimate("runs/policy/best", "runs/others", methods=["wis", "wpdis"], gate_method="wpdis")
print(result.estimates["wpdis"])""",
    "decide": """\
decision = offline.decide(
    "runs/others",
    ["runs/policy/best", "runs/expert/best"],
    output="runs/decision",
    estimate={"fqe": {"updates": 200}},
)
print(decision)""",
    "promote": """\
offline.promote("runs/policy/best", registry="runs/registry/cartpole", override="the first one; nothing ran before")
policy = offline.load_policy("runs/registry/cartpole@champion")""",
    "rollback": """\
offline.promote("runs/policy/best", registry="runs/registry/cartpole", override="the first one; nothing ran before")
offline.promote("runs/expert/best", registry="runs/registry/cartpole", override="it is better")
back = offline.rollback("runs/registry/cartpole", reason="it drops the pole")
print(back)""",
    "vacuum": """\
result = offline.vacuum("runs", keep_versions=3)  # only lists; delete=True deletes
print(result)""",
    "report": """\
page = offline.report("runs", output="page.html")
print(page)""",
    "export_policy": """\
exported = offline.export_policy("runs/policy/best", output="runs/exported")  # needs the extra onnx
print(exported)""",
}
"""Python for each stage, by the name of its function; it runs where `python -m examples.world` has been."""
GUIDES = {
    "train_expert": "train-expert",
    "record": "record",
    "import_data": "import",
    "convert": "import",
    "check": "check",
    "outliers": "outliers",
    "prune": "prune",
    "compact": "prune",
    "split": "prune",
    "merge": "prune",
    "mix": "prune",
    "publish": "retention",
    "export": "export",
    "train": "learning",
    "fine_tune": "fine-tune",
    "sweep": "sweep",
    "evaluate": "evaluate",
    "estimate": "estimate",
    "decide": "decide",
    "promote": "registry",
    "rollback": "registry",
    "vacuum": "retention",
    "report": "report",
    "export_policy": "export",
}
"""The page that explains each stage."""
LOOKS = ("plan_import", "open_dataset", "list", "read_registry", "tag", "about", "forget", "verify", "explain")
"""Functions that are no stages."""


def pages(stages: Mapping[str, Stage[..., Any]]) -> dict[Path, str]:
    """All pages that are written, by path."""
    written = {FOLDER / "stages" / f"{each.attribute}.md": _of_stage(each) for each in stages.values()}
    return written | {FOLDER / "stages.md": _list_of(stages), FOLDER / "parameters.md": _parameters()}


def _of_stage(stage: Stage[..., Any]) -> str:
    config, guide = stage.config.partition(":")[2], GUIDES[stage.attribute]
    return f"""\
# {stage.attribute}

{stage.summary} [What it does, and why](../../{guide}.md); the command is `offline {stage.name.replace("_", "-")}`.

```python
import offline_core as offline

{EXAMPLES[stage.attribute]}
```

::: offline_core.{stage.attribute}

::: offline_core.{config}
"""


def _list_of(stages: Mapping[str, Stage[..., Any]]) -> str:
    page = (FOLDER / "stages.md").read_text()
    before, heading, _ = page.partition("| stage |")
    rows = "".join(f"| [`{each.attribute}`](stages/{each.attribute}.md) | {each.summary} |\n" for each in stages.values())
    members = ", ".join(LOOKS)
    return (
        f"{before}{heading} does |\n|---|---|\n{rows}\n## Functions that are no stages\n\n"
        "::: offline_core\n    options: {show_root_heading: false, show_root_toc_entry: false, heading_level: 2, "
        f"members: [{members}]}}\n"
    )


def _parameters() -> str:
    """The page of the groups of parameters, which ends with those of the algorithms."""
    page = (FOLDER / "parameters.md").read_text()
    before, heading, _ = page.partition("## Algorithms\n")
    parts = [
        f"\n::: {kind.__module__}.{kind.__name__}\n"
        f"    options: {{inherited_members: true, members: [{', '.join(kind.model_fields)}]}}\n"
        for kind in algorithms().values()
    ]
    return before + heading + "".join(parts)
