"""A result of each kind that no stage made, for what has to hold of all cards."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from offline_core.data.curation.compact import CompactionResult
from offline_core.data.curation.converting import ConversionResult
from offline_core.data.curation.merge import MergeResult
from offline_core.data.curation.prune import PruningResult
from offline_core.data.curation.split import SplitResult
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.formats.exporting import ExportResult
from offline_core.data.formats.publishing import PublishResult
from offline_core.data.importing.report import Counts, ImportResult
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import Example, Finding, Histogram, QualityReport
from offline_core.judging.decisions.explanation import Choice, ExplainedStep, Explanation
from offline_core.judging.estimation.result import Estimate, EstimateResult, Interval
from offline_core.judging.ranking.advice import advise
from offline_core.judging.ranking.measures import ActionMeasures, Measures, ObservationScale
from offline_core.judging.ranking.result import Outlier, OutlierResult
from offline_core.judging.ranking.trainings import Trained
from offline_core.judging.sweeps.result import FailedRun, SweepResult, SweptRun, SweptSetting
from offline_core.keeping.homepage.config import ReportResult
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.keeping.retention.forget import ForgetResult, VersionWithout
from offline_core.keeping.retention.vacuum import VacuumResult, VersionFate
from offline_core.learning.result import ExpertResult, FineTuneResult, TrainingResult
from offline_core.policies.evaluation import EvaluationResult
from offline_core.policies.export_config import ExportedModel, Latency, PolicyExportResult
from offline_core.policies.recording.mixing import MixtureResult
from offline_core.policies.recording.result import RecorderShare, RecordingResult
from offline_core.policies.registry import Move
from offline_core.runtime.result import Result
from tests.data.datasets.factories import episode, write_dataset
from tests.judging.decisions.made_up import CALIBRATED, made_up

METRICS = {
    "episode_return_mean": 97.25,
    "episode_return_std": 12.0,
    "episode_return_min": 71.0,
    "episode_return_max": 120.0,
    "episode_length_mean": 97.2,
    "episodes": 30.0,
}
DRAWN = np.random.default_rng(0)
CURVE = [(1000 * i, 475 * (1 - 0.8**i)) for i in range(12)]
LOSSES = [(x, 1 / (1 + y)) for x, y in CURVE]


def results(folder: Path) -> dict[str, Result]:
    """One of each kind, by the name of its stage; they name a dataset below the folder that can be read."""
    ref = write_dataset(folder / "a dataset", [episode(i) for i in range(8)]).ref
    trained, policy = f"{folder}/policy", f"{folder}/policy/best"
    made = [
        *data_results(folder, ref),
        *policy_results(trained, policy, ref),
        *judged_results(folder, policy, ref),
        ("promote", promotion(folder)),
        ("vacuum", vacuumed(folder)),
        ("forget", forgotten(folder)),
        ("explain", explained(ref)),
        ("report", report(folder)),
    ]
    return dict(made)


def data_results(folder: Path, ref: DatasetRef) -> list[tuple[str, Result]]:
    statistics = write_dataset(folder / "counted", [episode(i) for i in range(3)]).statistics
    counts = Counts(rows=100, steps=90, episodes=9, quarantined_rows=10, quarantined_files=1)
    return [
        ("check", quality(ref)),
        ("compact", CompactionResult(dataset=ref, source=ref, files_before=30, files_after=2, statistics=statistics)),
        ("convert", ConversionResult(dataset=ref, source=ref, statistics=statistics)),
        ("export", ExportResult(source=ref, output="out", format="minari", episodes=8, steps=56, folder="out/offline")),
        (
            "import",
            ImportResult(dataset=ref, counts=counts, notes=["Terminations are guessed."], replaced="Version 1 goes."),
        ),
        ("merge", MergeResult(dataset=ref, sources=[ref] * 9, before=[statistics] * 9, after=statistics, duplicates=2)),
        ("mix", MixtureResult(dataset=ref, steps={"a": 20, "b": 36}, is_complete=False)),
        (
            "prune",
            PruningResult(
                dataset=ref.model_copy(update={"latest": 7}),
                source=ref,
                before=statistics,
                after=statistics,
                dropped={"where": 1},
                dropped_episodes=1,
                dropped_steps=7,
                further_pieces=0,
            ),
        ),
        ("publish", PublishResult(dataset=ref, format="delta", table=ref.uri)),
        (
            "record",
            RecordingResult(
                dataset=ref,
                policy="ab" * 8,
                environment="CartPole-v1",
                statistics=statistics,
                recorders=[RecorderShare(node="here", episodes=8, steps=56, seconds=2.0)],
                seconds=185.0,
                actions="sampled",
                greedy_return=400.0,
            ),
        ),
        ("split", SplitResult(train=ref, held_out=ref, source=ref, before=statistics, duplicates=0)),
    ]


def quality(ref: DatasetRef, *findings: Finding) -> QualityReport:
    found = findings or (
        finding("observations_outside_space"),
        finding("non_finite", "fail", advice="Prune with drop_non_finite: true."),
        finding("time_jumps", of=0),
        finding("open_episodes", "warn", advice="Prune with where: terminated or truncated."),
    )
    return QualityReport(
        dataset=ref,
        verdict="fail" if any(each.verdict == "fail" for each in found) else "pass",
        findings=list(found),
        statistics=Statistics(episodes=8, steps=56, terminated=4, truncated=4),
        returns=Histogram.of(DRAWN.normal(100, 20, 300)),
        lengths=Histogram.of(DRAWN.normal(50, 5, 300)),
        config=QualityConfig(),
    )


def finding(rule: str, verdict: str = "pass", *, of: int = 56, advice: str = "") -> Finding:
    examples = [Example(dataset="d", eps_id="episode-0003", t=5)] if verdict != "pass" else []
    return Finding(
        rule=rule,
        verdict=verdict,  # type: ignore[arg-type]
        count=0 if verdict == "pass" else 3,
        of=of,
        message=f"3 of {of} steps are wrong.",
        examples=examples,
        advice=advice,
    )


def training(checkpoint: str, ref: DatasetRef, **values: object) -> TrainingResult:
    given: dict[str, object] = {
        "checkpoint": checkpoint,
        "last_checkpoint": checkpoint,
        "dataset": ref,
        "algorithm": "marwil",
        "networks_sha256": "0" * 64,
        "updates": 1200,
        "steps": 120_000,
        "epochs": 3.2,
        "metrics": METRICS,
        "target_return": 90.0,
        "reached_target": True,
        "curve": CURVE,
        "losses": LOSSES,
        "training_metrics": {"entropy": 0.4, "q": 12.0},
        "recorded_return": 11.0,
        "held_out_losses": LOSSES[::3],
        "warnings": ["The Q values are far above what was recorded."],
        "seconds": 185.0,
        "load_seconds": 2.0,
        "update_seconds": 100.0,
        "gather_seconds": 3.0,
        "data_wait_seconds": 1.0,
        "bottleneck": "Updating took most of the time.",
        "steps_per_second": 12_345.6,
    }
    return TrainingResult.model_validate(given | values)


def policy_results(trained: str, policy: str, ref: DatasetRef) -> list[tuple[str, Result]]:
    latency = {"batch_1": Latency(p50_microseconds=20.0, p99_microseconds=31.0)}
    model = ExportedModel(file="policy.onnx", bytes=10, sha256="ab", max_abs_difference=1e-6, latency=latency)
    expert = {"metrics": METRICS, "target_return": 475.0, "reached_target": False, "env_steps": 10_000, "updates": 9}
    return [
        ("train_expert", ExpertResult(checkpoint=policy, seconds=61.0, curve=CURVE, recording=ref, **expert)),
        ("train", training(policy, ref)),
        ("fine_tune", FineTuneResult(checkpoint=policy, seconds=9.0, curve=CURVE, start_return=80.0, rollbacks=1, **expert)),
        (
            "evaluate",
            EvaluationResult(
                checkpoint=policy,
                uri=f"{policy}/_evaluations/0a.json",
                environment="CartPole-v1",
                metrics=METRICS | {"comfort": 0.25},
                returns=DRAWN.normal(97, 12, 30).tolist(),
                lengths=DRAWN.integers(40, 200, 30).tolist(),
                seconds=3.2,
            ),
        ),
        (
            "export_policy",
            PolicyExportResult(
                output=f"{trained}/onnx",
                policy=policy,
                observations_compared=512,
                models={"onnx": model},
                policy_latency=latency,
                seconds=4.0,
            ),
        ),
    ]


def estimated(**values: object) -> EstimateResult:
    each = {"effective_episodes": 50.0, "largest_weight": 0.1}
    given: dict[str, object] = {
        "uri": "runs/policy/_estimates/a.json",
        "checkpoint": "runs/policy",
        "dataset": DatasetRef(uri="runs/log", version=1, episodes=100, steps=1000, bytes=1, fingerprint="f"),
        "behaviour": None,
        "explore": True,
        "gamma": 0.99,
        "horizon": None,
        "confidence": 0.95,
        "recorded": Interval(value=10.0, low=9.0, high=11.0),
        "estimates": {
            "wis": Estimate(value=12.0, low=9.0, high=13.0, **each),
            "wdr": Estimate(value=12.0, low=11.0, high=13.0, **each),
        },
        "warnings": [],
        "open_episodes": 0,
        "unrecorded_share": 0.0,
        "seconds": 1.0,
    }
    return EstimateResult.model_validate(given | values)


def judged_results(folder: Path, policy: str, ref: DatasetRef) -> list[tuple[str, Result]]:
    return [
        ("estimate", estimated(warnings=["So few episodes count."])),
        ("sweep", swept(f"{folder}/sweep", ref)),
        ("decide", made_up("promote", uri=f"{folder}/decision", **CALIBRATED)),
        ("outliers", outliers(folder, ref)),
    ]


def swept(folder: str, ref: DatasetRef) -> SweepResult:
    def setting(name: str, score: float) -> SweptSetting:
        place = f"{folder}/runs/{name}"
        run = SweptRun(seed=1, checkpoint=f"{place}/1/last", score=score, curve=CURVE, updates=10, seconds=1.0)
        curve = [(x, y, y - 9, y + 9) for x, y in CURVE]
        numbers = {"mean": score, "interquartile_mean": score, "low": score - 9, "high": score + 9}
        return SweptSetting(
            name=name, parameters={"algorithm": name}, algorithm=name, folder=place, runs=[run], curve=curve, **numbers
        )

    names = ("iql", "marwil", "bc", "cql", "td3_bc")
    settings = [setting(name, 250.0 - 10 * number) for number, name in enumerate(names)]
    return SweepResult(
        checkpoint=settings[0].runs[0].checkpoint,
        dataset=ref,
        score="last_return",
        settings=settings,
        expected_best={"iql": [240.0, 245.0], "bc": [200.0]},
        failures=[FailedRun(setting="cql", seed=2, error="MemoryError: none left", may_pass=True)],
        confidence=0.95,
        seconds=600.0,
    )


def outliers(folder: Path, ref: DatasetRef) -> OutlierResult:
    known = dict.fromkeys(Measures.model_fields, 0.5)
    scale = ObservationScale(spreads=(1.0, 1.0), largest=1.0)
    measures = Measures.model_construct(**known | {"actions": ActionMeasures(kind="discrete"), "observations": scale})
    advice = advise(measures, Trained(["runs/recording"]))
    values = {
        "uri": f"{folder}/outliers",
        "scores": f"{folder}/outliers/scores.parquet",
        "dataset": ref,
        "threshold": 6.0,
        "count": 2,
        "outliers": [Outlier(episode=3, eps_id="x", score=9.5, farther_than=3, reason="a large return")],
        "quantiles": {"0.5": 1.0, "0.9": 2000.0},
        "notes": ["Times could not be looked at."],
        "measures": measures,
        "advice": advice,
        "seconds": 1.0,
        "reused": False,
    }
    return OutlierResult.model_construct(**values)


def promotion(folder: Path) -> PromotionResult:
    entry = f"{folder}/registry/hvac"
    move = Move(
        number=2,
        kind="assign",
        alias="champion",
        checkpoint=f"checkpoints/{'ab' * 8}",
        fingerprint="ab" * 8,
        source="runs/policy/best",
        previous=f"checkpoints/{'cd' * 8}",
        reason="a test",
        moved_by="ada",
    )
    return PromotionResult(checkpoint=f"{entry}/{move.checkpoint}", address=f"{entry}@champion", move=move)


def vacuumed(folder: Path, *, deleted: bool = False) -> VacuumResult:
    fate = VersionFate(uri=f"{folder}/a", version=1, created_at=datetime(2026, 1, 2, tzinfo=UTC), bytes=1_200_000, reason="old")
    return VacuumResult(
        root=str(folder), removed=[fate], kept=[fate], leftovers={"x": 10}, busy=[], freed_bytes=1_200_010, deleted=deleted
    )


def explained(ref: DatasetRef) -> Explanation:
    rule = "rule:case when hour < 7 then 0 else 2 end"
    steps = [
        ExplainedStep(
            episode="0" * 32,
            step=number,
            seen={"hour": f"{number}", "mode": "heat"},
            done="0" if number % 2 else "2",
            reward=-0.25 * number,
            choices={
                "iql/best": Choice(action="2", chance=0.8 - 0.005 * number, agrees=number % 2 == 0),
                rule: Choice(action="0" if number < 7 else "2", chance=None, agrees=False),
            },
        )
        for number in range(120)
    ]
    named = {"iql/best": "runs/iql/best", rule: rule}
    return Explanation(dataset=ref, episode="0" * 32, policies=named, steps=steps, more_seen=3)


def forgotten(folder: Path) -> ForgetResult:
    version = VersionWithout(uri=f"{folder}/a", version=1, episodes=2, steps=14)
    lists = {"policies": ["p"], "addresses": ["r@champion"], "removed": ["c"], "texts": ["t"], "left": ["l"]}
    return ForgetResult(root=str(folder), ids=2, versions=[version], deleted=False, **lists)


def report(folder: Path) -> ReportResult:
    counts = {"datasets": 2, "versions": 5, "policies": 3, "runs": 4, "episodes": 100, "episodes_with_steps": 10}
    place = {"uri": f"{folder}/report.html", "root": str(folder)}
    return ReportResult(problems=["x: no JSON"], bytes=120_000, seconds=2.0, **place, **counts)
