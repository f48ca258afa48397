"""What was done once is not done again: every step of the core, called twice, and a place that two want to write to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from pydantic import BaseModel

from flows.events import announce
from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig, MergeConfig, PruningConfig, SplitConfig
from offline_core.data.curation.converting import convert
from offline_core.data.curation.merge import merge
from offline_core.data.curation.prune import prune
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import DatasetRef, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.result_cache import STATES
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.importing.config import ConversionConfig, ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.errors import BusyError, CheckpointError, ConfigError, OfflineError
from offline_core.judging.estimation.config import EstimateConfig, FQEConfig
from offline_core.judging.estimation.estimate import estimate
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.train import train
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.policies.export import export_policy
from offline_core.policies.export_config import PolicyExportConfig
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.policies.recording.mixing import MixtureConfig, mix
from offline_core.runtime.config import EnvironmentSpec, parse
from tests.cases import slow_but
from tests.data.datasets.factories import episode, write_dataset
from tests.learning.test_train import balancing_episodes, dataset_of

EXPERT = {"total_steps": 2_000, "num_envs": 4, "evaluation": {"episodes": 2}, "network": {"hidden_sizes": [8]}}
OPERATION = Operation(name="untrained")
IMPORT = parse(ImportConfig, {"episodes": {"last_new_obs": "repeat"}})
TRAINING = {"network": {"hidden_sizes": [8]}, "optimizer": {"max_epochs": 1}, "evaluation": {"episodes": 2}}


def dataset(root: Path) -> str:
    return str(root / "data")


def expert(root: Path) -> BaseModel:
    return train_expert(parse(ExpertConfig, EXPERT), output=str(root / "out"))


def policy(root: Path) -> BaseModel:
    return train(parse(TrainingConfig, TRAINING), dataset=dataset(root), output=str(root / "out"))


STEPS: dict[str, Callable[[Path], BaseModel]] = {
    "import": lambda root: import_data(IMPORT, source=str(root / "rows.parquet"), output=str(root / "out")),
    "convert": lambda root: convert(ConversionConfig(), dataset=dataset(root), output=str(root / "out")),
    "prune": lambda root: prune(PruningConfig(keep_top_fraction=0.5), dataset=dataset(root), output=str(root / "out")),
    "compact": lambda root: compact(CompactionConfig(), dataset=dataset(root), output=str(root / "out")),
    "split": lambda root: split(SplitConfig(), dataset=dataset(root), output=str(root / "out")),
    "merge": lambda root: merge(MergeConfig(), datasets=[dataset(root)], output=str(root / "out")),
    "mix": lambda root: mix(MixtureConfig(datasets={dataset(root): 1.0}, steps=100), output=str(root / "out")),
    "check": lambda root: check(QualityConfig(), dataset=dataset(root)),
    "export": lambda root: export(ExportConfig(), dataset=dataset(root), output=str(root / "out")),
    "train expert": expert,
    "train policy": policy,
    "evaluate": lambda root: evaluate(EvaluationConfig(episodes=2), policy=str(root / "policy")),
    "estimate": lambda root: estimate(
        EstimateConfig(methods=["fqe"], resamples=10, fqe=FQEConfig(updates=10)),
        policy=str(root / "policy"),
        dataset=dataset(root),
    ),
    "export policy": lambda root: export_policy(
        PolicyExportConfig(latency_calls=2), policy=str(root / "policy"), output=str(root / "out")
    ),
}


def write_rows(root: Path) -> None:
    """Steps of two episodes, as other people may have them, in `rows.parquet`."""
    rows = {"eps_id": ["a"] * 3 + ["b"] * 2, "t": [0, 1, 2, 0, 1], "actions": [0, 1, 0, 1, 1], "rewards": [1.0] * 5}
    rows |= {"obs": [[0.1 * i, 0.2] for i in range(5)], "terminateds": [False, False, True, False, True]}
    pl.DataFrame(rows).write_parquet(root / "rows.parquet")


@pytest.fixture
def root(tmp_path: Path, cartpole_policy: str) -> Path:
    shutil.copytree(cartpole_policy, tmp_path / "policy")
    dataset_of(tmp_path / "data", balancing_episodes(20, 30), environment=EnvironmentSpec(id="CartPole-v1"))
    write_rows(tmp_path)
    return tmp_path


@pytest.mark.parametrize("step", slow_but(STEPS, *STEPS.keys() - {"export policy"}))
def test_a_step_that_was_done_is_found(root: Path, step: str) -> None:
    first = STEPS[step](root)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    again = STEPS[step](root)
    assert not first.reused and again == first.model_copy(update={"reused": True})  # type: ignore[attr-defined]
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()} == before, "nothing is written"


def test_a_result_is_found_without_torch_and_without_ray(root: Path) -> None:
    """Importing them takes longer than all of a look."""
    policy(root)
    script = f"""
        import sys
        from offline_core.keeping.perform import perform
        from offline_core.runtime.config import parse
        from offline_core.runtime.stage import STAGES, load

        data, policy, training = {dataset(root)!r}, {str(root / "policy")!r}, {str(root / "out")!r}
        given = {{
            "fine_tune": ({{}}, {{"training": training, "dataset": data, "output": training + "/tuned"}}),
            "evaluate": ({{}}, {{"policy": policy}}),
            "estimate": ({{}}, {{"policy": policy, "dataset": data}}),
            "decide": ({{}}, {{"dataset": data, "candidates": [policy], "output": training + "/decision"}}),
            "outliers": ({{}}, {{"dataset": data, "output": training + "/outliers"}}),
            "sweep": ({{"grid": {{"algorithm": ["bc", "iql"]}}}}, {{"dataset": data, "output": training + "/sweep"}}),
            "train_expert": ({{}}, {{"output": training + "/expert"}}),
            "record": ({{}}, {{"policy": policy, "output": training + "/recording"}}),
            "mix": ({{"datasets": {{data: 1.0}}, "policies": {{policy: 1.0}}, "steps": 10}}, {{"output": training + "/mixed"}}),
            "export_policy": ({{}}, {{"policy": policy, "output": training + "/exported"}}),
        }}
        for name, (config, places) in given.items():
            assert STAGES[name].known(parse(load(STAGES[name].config), config), **places) is None
        train = STAGES["train"]
        assert perform(train, parse(load(train.config), {TRAINING!r}), {{"dataset": data, "output": training}}).reused
        for stage in STAGES.values():
            load(stage.function)
        print(sorted({{"torch", "ray"}} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_states_of_a_run_that_was_killed_once_its_result_was_there_are_removed(root: Path) -> None:
    first = policy(root)
    states = root / "out" / STATES
    states.mkdir()
    (states / "000000001.json").write_text("{}")
    assert train.known(parse(TrainingConfig, TRAINING), dataset=dataset(root), output=str(root / "out")) is not None
    assert states.exists(), "a look removes nothing"
    assert policy(root) == first.model_copy(update={"reused": True}) and not states.exists()


@pytest.mark.parametrize("step", ["import", "convert", "prune", "compact", "split", "merge", "mix"])
def test_a_step_that_reuses_a_version_that_is_not_the_latest_says_so(
    root: Path, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = _refs(STEPS[step](root))
    for ref in made:
        assert ref.latest is None
        assert write_dataset(Path(ref.uri), [episode(0)]).manifest.version == 2
    again = STEPS[step](root)
    assert _refs(again) == [ref.model_copy(update={"latest": 2}) for ref in made] and again.reused  # type: ignore[attr-defined]
    assert "version 1 (" in caplog.text and "not the latest version, which is 2" in caplog.text


def _refs(result: BaseModel) -> list[DatasetRef]:
    """The datasets that a step made."""
    refs = {name: value for name, value in result if isinstance(value, DatasetRef) and name != "source"}
    return list(refs.values())


def test_the_earlier_version_that_is_reused_is_what_the_next_step_and_the_event_get(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = STEPS["import"](root).dataset  # type: ignore[attr-defined]
    write_dataset(Path(first.uri), [episode(0)])
    again = STEPS["import"](root).dataset  # type: ignore[attr-defined]
    sent: list[dict[str, object]] = []
    monkeypatch.setattr("flows.events.emit_event", lambda _event, **told: sent.append(told["payload"]))
    announce(again, "dataset.imported")
    assert sent == [again.model_dump(include={"uri", "version", "fingerprint", "episodes", "steps"})] and again.version == 1


def test_an_expert_or_policy_that_is_damaged_is_made_again_as_it_was(root: Path) -> None:
    for step in ("train expert", "train policy"):
        first = STEPS[step](root)
        [weights] = (root / "out" / "best").glob("weights-*")
        whole = weights.read_bytes()
        weights.write_bytes(whole[:-1])
        again = STEPS[step](root)
        assert not again.reused, step  # type: ignore[attr-defined]
        assert weights.read_bytes() == whole
        assert STEPS[step](root).reused  # type: ignore[attr-defined]
        assert first.checkpoint == again.checkpoint  # type: ignore[attr-defined]


def test_another_policy_in_the_same_place_is_not_taken_for_the_first(root: Path) -> None:
    first = policy(root)
    other = parse(TrainingConfig, TRAINING | {"seed": 1})
    train(other, dataset=dataset(root), output=str(root / "out"))
    assert not policy(root).reused and versions(dataset(root)) == [1]  # type: ignore[attr-defined]
    assert policy(root) == first.model_copy(update={"reused": True, **_times(policy(root))})


def _times(result: BaseModel) -> dict[str, object]:
    """What differs between two runs that do the same."""
    names = [name for name in type(result).model_fields if "seconds" in name or name in ("steps_per_second", "bottleneck")]
    return {name: getattr(result, name) for name in names}


def test_a_place_is_written_to_by_one_at_a_time_and_free_when_that_one_dies(root: Path) -> None:
    """Another process holds it, as a training that is under way does; it is killed."""
    script = f"""
        from offline_core.data.store.location import Location
        with Location.of({str(root / "out")!r}).make_folder().locked():
            print("held", flush=True)
            input()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        for step in (expert, policy):
            with pytest.raises(BusyError, match=r"Another run is writing to .*/out\. Wait") as caught:
                step(root)
            assert caught.value.may_pass
        other.kill()
    assert not expert(root).reused  # type: ignore[attr-defined]


def test_another_environment_is_another_evaluation_even_of_the_same_weights(root: Path) -> None:
    """Where a policy was trained decides where it plays, and is no part of its weights."""
    place = root / "moved"
    config, short = EvaluationConfig(episodes=2), EnvironmentSpec(id="CartPole-v1", kwargs={"max_episode_steps": 3})
    save_policy(load_policy(str(root / "policy")), str(place), operation=OPERATION, environment=EnvironmentSpec())
    first = evaluate(config, policy=str(place))
    save_policy(load_policy(str(root / "policy")), str(place), operation=OPERATION, environment=short)
    second = evaluate(config, policy=str(place))
    assert not second.reused and max(second.lengths) == 3 < max(first.lengths)
    assert evaluate(config.model_copy(update={"environment": short}), policy=str(place)).reused, "None meant that one"


@pytest.mark.parametrize("step", ["check", "evaluate"])
def test_what_is_gone_is_an_error_and_not_an_old_result(root: Path, step: str) -> None:
    STEPS[step](root)
    for file in [*(root / "data").rglob("*.parquet"), *(root / "policy").glob("weights-*")]:
        file.unlink()
    with pytest.raises(OfflineError, match=r"gone|not there"):
        STEPS[step](root)


def test_a_copy_does_not_lead_back_to_where_it_was_made(root: Path) -> None:
    policy(root)
    shutil.copytree(root / "out", root / "copy")
    copied = train(parse(TrainingConfig, TRAINING), dataset=dataset(root), output=str(root / "copy"))
    assert not copied.reused and copied.checkpoint == str(root / "copy" / "best")


def test_data_read_in_another_order_is_another_training(root: Path) -> None:
    streamed = parse(TrainingConfig, TRAINING | {"data": {"resident_bytes": 0}})
    kept = policy(root)
    other = train(streamed, dataset=dataset(root), output=str(root / "out"))
    assert not kept.reused and not other.reused  # type: ignore[attr-defined]
    assert train(streamed, dataset=dataset(root), output=str(root / "out")).reused


def test_an_expression_is_not_told_by_its_text(root: Path) -> None:
    ids = pl.read_parquet(sorted((root / "data").rglob("*.parquet")))["eps_id"].to_list()
    kept = [
        prune(PruningConfig(), dataset=dataset(root), output=str(root / "out"), where=pl.col("eps_id").is_in(pl.Series(some)))
        for some in (ids[:3], ids[3:10], ids[:3])
    ]
    assert [result.after.episodes for result in kept] == [3, 7, 3]
    assert kept[2].dataset == kept[0].dataset.model_copy(update={"latest": 2}), "made again, and the same"


def test_a_policy_that_was_replaced_meanwhile_is_not_taken_for_the_one_before(root: Path) -> None:
    place = str(root / "replaced")
    save_policy(Policy(*spaces_of(EnvironmentSpec())), place, operation=OPERATION)
    before = read_policy_manifest(place)
    save_policy(Policy(*spaces_of(EnvironmentSpec()), NetworkConfig(hidden_sizes=[8])), place, operation=OPERATION)
    with pytest.raises(CheckpointError, match="are missing"):
        load_policy(place, before)


def test_a_dataset_and_the_result_of_a_run_share_no_folder(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", [episode(number, 8) for number in range(4)], "table").ref
    with pytest.raises(ConfigError, match=r"/data is a dataset, beside which no result is stored: give another output"):
        train(parse(TrainingConfig, {"optimizer": {"max_updates": 1}}), dataset=data.uri, output=data.uri)
    shutil.copytree(tmp_path / "data", tmp_path / "more")
    run = train(parse(TrainingConfig, {"optimizer": {"max_updates": 1}}), dataset=data.uri, output=str(tmp_path / "run"))
    told = r"/run holds the result of another stage, and no dataset: give another output"
    with pytest.raises(ConfigError, match=told):
        merge(MergeConfig(), datasets=[data.uri, str(tmp_path / "more")], output=str(tmp_path / "run"))
    (tmp_path / "log.csv").write_text("eps_id,t,obs,actions,rewards\na,0,0.5,1,1.5\na,1,0.5,0,1.5\n")
    with pytest.raises(ConfigError, match=told):
        import_data(ImportConfig(), source=str(tmp_path / "log.csv"), output=str(tmp_path / "run"))
    assert Path(run.checkpoint).is_dir()
