"""The stages, each said once: the command line, its plans and the tasks are made from this table. Imports nothing heavy."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Event = Literal["dataset.recorded", "dataset.imported", "dataset.pruned", "dataset.passed"]


@dataclass(frozen=True)
class Argument:
    """A parameter of a stage besides its config."""

    name: str
    help: str
    default: Any = None
    is_option: bool = False
    """On the command line, and not a positional argument."""
    is_required: bool = False
    """On the command line; a form begins with the default."""
    kind: Literal["folder", "uris", "sources", "version", "environment", "switch"] = "folder"
    """folder: a place of this pipeline. uris: one or more of any kind. sources: the same, of which a form
    takes one as a text. environment: sets environment.id of the config. switch:
    sets what has its name in the config to true."""


@dataclass(frozen=True)
class Stage:
    """One stage. Paths of code are relative to `offline_core`, as `curation.config:PruningConfig`."""

    verb: str
    operation: str
    """Name of the core's function, of the task and of the flow."""
    module: str
    """Of the core's function."""
    config: str
    summary: str
    """What it does, in one sentence: of the task, the flow, its form and the command's help."""
    arguments: tuple[Argument, ...]
    card: str
    """Key of its artifact, whose history Prefect shows."""
    hint: str = ""
    """How the command line asks for what matters most; a sentence of its help."""
    run_name: str | None = None
    """Of the flow and of the task, in which its parameters are filled in."""
    event: Event | None = None
    """Announces the dataset that was made, or that passed, to automations."""
    plan: str | None = None
    plan_help: str = "Only say what would be read and written, and the cost on this machine."
    gate: str | None = None
    """Raises where the result does not meet the config."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Optional groups of parameters beside the config, with their models."""
    function: str | None = None
    """Of the core, if its name is another one."""

    @property
    def help(self) -> str:
        """Of the command line."""
        return f"{self.summary} {self.hint}".strip()

    @property
    def name(self) -> str:
        """Of the task and of the flow, as Prefect shows it."""
        return self.operation.replace("_", "-")

    @property
    def core(self) -> str:
        """Path of the core's function."""
        return f"{self.module}:{self.function or self.operation}"


def load(path: str) -> Any:
    """What `module:name` of the core is; imports the module."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"offline_core.{module}"), name)


VERSION = Argument("version", "Version of the dataset; the latest if none is given.", is_option=True, kind="version")
ENVIRONMENT = Argument("env", "Gymnasium id of the environment.", is_option=True, kind="environment")
REGISTRY = Argument("registry", "Folder of the registry and name of the policy in it.", "runs/registry/policy")
DATASET = Argument("dataset", "Folder of the dataset to read.", "runs/recording")


def _output(default: str, help: str = "Folder of the dataset to write.", *, is_option: bool = False) -> Argument:
    return Argument("output", help, default, is_option)


def _policy(verb: str, default: str = "runs/policy/best") -> Argument:
    return Argument("policy", f"Checkpoint of the policy to {verb}.", default)


STAGES = {
    stage.operation: stage
    for stage in (
        Stage(
            verb="train-expert",
            operation="train_expert",
            module="learning.experts.train",
            config="learning.experts.config:ExpertConfig",
            summary="Train an expert with PPO, SAC or TD3 until it reaches a target return.",
            arguments=(_output("runs/expert", "Folder for the checkpoint."), ENVIRONMENT),
            card="expert-card",
            run_name="train-expert-{config.environment.id}-{config.seed}",
        ),
        Stage(
            verb="record",
            operation="record_episodes",
            module="policies.recording.record",
            config="policies.recording.config:RecordingConfig",
            summary="Record complete episodes of a policy as the next version of a dataset.",
            hint="With -s export.format=… and -s export.output=… it is also written in another format.",
            arguments=(_policy("play", "runs/expert/best"), _output("runs/recording")),
            card="recording-card",
            run_name="record-{config.episodes}x{config.rounds}-{config.format}",
            event="dataset.recorded",
            plan="plans.recording:plan_recording",
            groups={"export": "policies.recording.config:RecordingExport"},
        ),
        Stage(
            verb="import",
            operation="import_dataset",
            module="data.importing.importing",
            config="data.importing.config:ImportConfig",
            summary="Import experience of any kind: recordings of RLlib, tables, Minari and D4RL files, CSV and more.",
            hint="Columns are named by -s mapping.obs=o_t -s mapping.dones=d_t, and so on.",
            arguments=(
                Argument(
                    "source",
                    "Files, folders or patterns with * or **, of RLlib, tables, Minari, D4RL, CSV …",
                    ["data"],
                    kind="sources",
                ),
                _output("runs/imported", is_option=True),
                Argument("append", "Add what is new to the latest version.", False, is_option=True, kind="switch"),
            ),
            card="import-card",
            event="dataset.imported",
            plan="data.import_plan.plan:plan_import",
            plan_help="Only look: first rows, what the columns are taken for and why, what is to decide, and the YAML for -c, "
            "which -o FILE.yaml or > FILE keeps.",
        ),
        Stage(
            verb="convert",
            operation="convert_table",
            module="data.curation.converting",
            config="data.importing.config:ConversionConfig",
            summary="Write a dataset an episode a row, or a step a row, losing nothing.",
            hint="-s format=table writes a step a row.",
            arguments=(DATASET, _output("runs/converted"), VERSION),
            card="conversion-card",
            plan="plans.conversion:plan_conversion",
        ),
        Stage(
            verb="check",
            operation="check_dataset",
            module="data.quality.check",
            config="data.quality.config:QualityConfig",
            summary="Check every step of a dataset by the quality rules, and stop if it fails.",
            hint="The exit code is 1 if it fails.",
            arguments=(DATASET, VERSION),
            card="quality-card",
            event="dataset.passed",
            gate="data.quality.check:enforce",
        ),
        Stage(
            verb="outliers",
            operation="find_outliers",
            module="judging.ranking.outliers",
            config="judging.ranking.config:OutlierConfig",
            summary="Rank the episodes by how unlike the others they are, and say which algorithm the dataset speaks for.",
            arguments=(DATASET, _output("runs/outliers", "Folder for the scores."), VERSION),
            card="outliers-card",
        ),
        Stage(
            verb="prune",
            operation="prune_dataset",
            module="data.curation.prune",
            config="data.curation.config:PruningConfig",
            summary="Keep the episodes that meet some conditions, as the next version of a dataset.",
            hint="Example: -s where='return >= 400'.",
            arguments=(DATASET, _output("runs/pruned"), VERSION),
            card="pruning-card",
            event="dataset.pruned",
            plan="data.curation.plan:plan_pruning",
        ),
        Stage(
            verb="compact",
            operation="compact_dataset",
            module="data.curation.compact",
            config="data.curation.config:CompactionConfig",
            summary="Copy a dataset into files of another size.",
            hint="Example: -s files.max_bytes_per_file=268435456.",
            arguments=(DATASET, _output("runs/compacted"), VERSION),
            card="compaction-card",
            plan="plans.conversion:plan_compaction",
        ),
        Stage(
            verb="split",
            operation="split_dataset",
            module="data.curation.split",
            config="data.curation.config:SplitConfig",
            summary="Split a dataset by episode into train and held_out, with the same spread of returns.",
            arguments=(DATASET, _output("runs/split", "Folder for the two datasets, train and held_out."), VERSION),
            card="split-card",
        ),
        Stage(
            verb="merge",
            operation="merge_datasets",
            module="data.curation.merge",
            config="data.curation.config:MergeConfig",
            summary="Copy the episodes of several datasets, each once, into one.",
            arguments=(
                Argument("datasets", "Folders of the datasets to read.", ["runs/recording"], kind="uris", is_required=True),
                _output("runs/merged", is_option=True),
            ),
            card="merge-card",
        ),
        Stage(
            verb="mix",
            operation="mix_datasets",
            module="policies.recording.mixing",
            config="policies.recording.config:MixtureConfig",
            summary="Write whole episodes of datasets and playing policies, by weight in steps.",
            hint="Example: -s 'datasets={runs/a: 0.7, runs/b: 0.3}'.",
            arguments=(_output("runs/mixture"),),
            card="mixture-card",
        ),
        Stage(
            verb="export",
            operation="export_dataset",
            module="data.formats.exporting",
            config="data.formats.exporting:ExportConfig",
            summary="Write a dataset for Minari, LeRobot, RLlib (sample_batch), D4RL or a writer of your own.",
            hint="The format is chosen by -s format=….",
            arguments=(
                DATASET,
                _output("runs/export", "Folder to write; an existing export is replaced, nothing else is."),
                VERSION,
            ),
            card="export-card",
        ),
        Stage(
            verb="publish",
            operation="publish_dataset",
            module="data.formats.publishing",
            config="data.formats.publishing:PublishConfig",
            summary="Make a Delta or Iceberg table show a version by its own files, for Spark, DuckDB and Polars.",
            hint="Delta is the default; -s format=iceberg chooses Iceberg.",
            arguments=(DATASET, VERSION),
            card="publication-card",
            run_name="publish-{config.format}",
        ),
        Stage(
            verb="train",
            operation="train_policy",
            module="learning.train",
            config="learning.config:TrainingConfig",
            summary="Learn a policy from recorded experience.",
            arguments=(
                DATASET,
                _output("runs/policy", "Folder for checkpoints and metrics."),
                VERSION,
            ),
            card="policy-card",
            run_name="train-{config.algorithm}-{config.seed}",
            plan="plans.training:plan_training",
        ),
        Stage(
            verb="fine-tune",
            operation="fine_tune_policy",
            module="learning.fine_tuning.fine_tune",
            config="learning.fine_tuning.config:FineTuneConfig",
            summary="Go on by play from a training by iql, cal_ql, td3_bc and the like, with recorded and fresh steps.",
            arguments=(
                Argument("training", "Folder of the training.", "runs/policy"),
                DATASET,
                _output("runs/fine-tuned", "Folder for the checkpoint."),
                VERSION,
            ),
            card="fine-tuning-card",
            run_name="fine-tune-{config.seed}",
        ),
        Stage(
            verb="sweep",
            operation="sweep_settings",
            module="judging.sweeps.sweep",
            config="judging.sweeps.config:SweepConfig",
            summary="Train many settings with many seeds, and compare them.",
            hint="Example: -s 'grid={algorithm: [bc, marwil]}' -s seeds=5.",
            arguments=(
                DATASET,
                _output("runs/sweep", "Folder for all runs and their comparison."),
                VERSION,
            ),
            card="sweep-card",
            run_name="sweep-{config.seed}",
            plan="plans.sweeping:plan_sweep",
            gate="judging.sweeps.sweep:enforce",
        ),
        Stage(
            verb="evaluate",
            operation="evaluate_policy",
            module="policies.evaluation.evaluate",
            config="policies.evaluation.config:EvaluationConfig",
            summary="Play a policy on start states that no other stage has seen.",
            arguments=(_policy("play"),),
            card="evaluation-card",
            run_name="evaluate-{config.episodes}-{config.seed}",
        ),
        Stage(
            verb="estimate",
            operation="estimate_policy",
            module="judging.estimation.estimate",
            config="judging.estimation.config:OffPolicyConfig",
            summary="Estimate a policy's return from recorded episodes without playing it, and stop if it is too little.",
            hint="-s require_return=… says how much is enough.",
            arguments=(_policy("estimate"), DATASET, VERSION),
            card="estimate-card",
            gate="judging.estimation.estimate:enforce",
        ),
        Stage(
            verb="decide",
            operation="decide_policies",
            module="judging.decisions.decide",
            config="judging.decisions.config:DecisionConfig",
            summary="Say from a log which of several policies may replace what runs today.",
            hint="Example: -s against=runs/champion -s risk=0.05.",
            arguments=(
                DATASET,
                Argument("candidates", "Checkpoints of the policies.", ["runs/policy/best"], kind="uris"),
                _output("runs/decision", "Folder for the decision and both sides of the log.", is_option=True),
                VERSION,
            ),
            card="decision-card",
            run_name="decide-{config.seed}",
            function="decide",
        ),
        Stage(
            verb="promote",
            operation="promote_policy",
            module="keeping.promotion.promote",
            config="keeping.promotion.config:PromotionConfig",
            summary="Move an alias of the registry, champion by default, to the policy that a decision promotes.",
            arguments=(
                REGISTRY,
                Argument(
                    "source", "Folder of the decision; with -s override=… also the checkpoint of a policy.", "runs/decision"
                ),
            ),
            card="promotion-card",
            run_name="promote-to-{config.alias}",
        ),
        Stage(
            verb="rollback",
            operation="rollback_policy",
            module="keeping.promotion.rollback",
            config="keeping.promotion.config:RollbackConfig",
            summary="Move an alias of the registry back to the policy that it named before.",
            arguments=(REGISTRY,),
            card="promotion-card",
            run_name="rollback-{config.alias}",
        ),
        Stage(
            verb="vacuum",
            operation="vacuum_datasets",
            function="vacuum",
            module="keeping.retention.vacuum",
            config="keeping.retention.config:VacuumConfig",
            summary="List old versions of the datasets below a folder, and files that belong to none, or delete them for good.",
            hint="-s delete=true deletes them.",
            arguments=(Argument("root", "Folder of a dataset, or one that holds some.", "runs"),),
            card="vacuum-card",
        ),
        Stage(
            verb="report",
            operation="publish_report",
            function="report",
            module="keeping.homepage.report",
            config="keeping.homepage.config:ReportConfig",
            summary="Make one HTML page of a root: datasets and their episodes, experiments, policies, decisions, lineage.",
            arguments=(
                Argument("root", "Folder with all that was made.", "runs"),
                Argument("output", "HTML file to write; report.html in the root if none is given.", is_option=True),
            ),
            card="report-card",
        ),
        Stage(
            verb="export-policy",
            operation="export_policy",
            module="policies.export",
            config="policies.export_config:PolicyExportConfig",
            summary="Write a policy as ONNX or for Torch, and show that it does the same there.",
            hint="-s 'formats=[torch_export]' chooses Torch.",
            arguments=(_policy("export"), _output("runs/exported", "Folder for the models; an existing export is replaced.")),
            card="policy-export-card",
        ),
    )
}
"""By operation, in the order of the command line's help."""
