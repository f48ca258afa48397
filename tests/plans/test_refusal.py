"""What is refused before anything starts is what the stage would refuse, and nothing else."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.errors import ConfigError, DataError, StorageError, StorageUnavailableError
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.plans.refusal import refuse
from offline_core.runtime.config import parse
from tests.data.datasets.factories import episode, write_dataset


@pytest.mark.parametrize(
    ("mapping", "message"),
    [({}, "There is no column rewards and none is mapped to it"), ({"rewards": "r"}, "There is no column r to map")],
)
def test_columns_that_an_import_does_not_find(mapping: dict[str, str], message: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs.csv"
    logs.write_text("obs,actions,gained,terminateds\n0.5,1,1.0,1\n")
    parameters = {"source": str(logs), "output": str(tmp_path / "out"), "config": parse(ImportConfig, {"mapping": mapping})}
    with pytest.raises(DataError, match=message):
        refuse(parameters)
    refuse(parameters | {"config": parse(ImportConfig, {"mapping": {"rewards": "gained"}})})
    assert [*tmp_path.iterdir()] == [logs]


@pytest.mark.parametrize(
    ("columns", "mapping"),
    [
        ({"computed": {"log_p": "ln(p)"}}, {"obs": ["x"], "action_logp": "log_p"}),
        ({"joins": [{"source": "prices.csv", "on": ["t"], "columns": ["price"]}]}, {"obs": ["x", "price"]}),
        ({"fill": {"p": 0.5}}, {"obs": ["x", "p"]}),
        ({"encode": {"mode": {"categories": "auto"}}}, {"obs": ["x", "mode"]}),
        ({"encode": {"mode": {"categories": ["off", "heat"], "form": "index"}}}, {"obs": ["x"], "actions": "mode"}),
        ({"discretise": {"x": {"equal": 2}}}, {"obs": ["p"], "actions": "x"}),
        ({"in_episode": {"before": {"of": "x", "first": 0}}}, {"obs": ["x", "before"]}),
    ],
    ids=["computed", "joins", "fill", "encode", "encoded-action", "bins", "in_episode"],
)
@pytest.mark.parametrize("name", ["config", "importing"])  # of the import, and of the chains that begin with one
def test_columns_that_are_made_are_found_where_the_import_finds_them(
    columns: dict[str, Any], mapping: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"a,{t},{t}.5,{'heat' if t else 'off'},{'' if t and 'fill' in columns else 0.5},1,1.0" for t in range(3)]
    Path("logs.csv").write_text("\n".join(["id,t,x,mode,p,a,rewards", *rows]))
    Path("prices.csv").write_text("t,price\n0,0.1\n1,0.2\n2,0.3\n")
    values = {"columns": columns, "mapping": {"eps_id": "id", "actions": "a"} | mapping, "episodes": {"last_new_obs": "repeat"}}
    config = parse(ImportConfig, values)
    refuse({"source": "logs.csv", "output": "out", name: config})
    assert import_data(config, source="logs.csv", output="out").counts.episodes == 1


def test_dates_that_only_a_later_file_settles(tmp_path: Path) -> None:
    for name, dates in (("a", ["01/02/2025", "02/02/2025"]), ("b", ["13/02/2025", "14/02/2025"])):
        rows = [f"{name},{t},{date},{t}.5,1,1.0" for t, date in enumerate(dates)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["eps_id,t,day,x,actions,rewards", *rows]))
    prices = tmp_path / "more" / "prices.csv"
    prices.parent.mkdir()
    prices.write_text("day,price\n2025-01-01,0.1\n2025-02-10,0.2\n")
    join = {"source": str(prices), "asof": "day", "columns": ["price"]}
    config = parse(ImportConfig, {"columns": {"joins": [join]}, "mapping": {"obs": ["x", "price"]}})
    refuse({"source": [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], "output": str(tmp_path / "out"), "config": config})


def test_a_computed_column_whose_row_cannot_be_read(tmp_path: Path) -> None:
    logs = tmp_path / "logs.csv"
    logs.write_text("obs,actions,rewards,p,terminateds\n0.5,1,1.0,0.5,0\n0.5,1,1.0,0.0,1\n")
    values = {"columns": {"computed": {"log_p": "ln(p)"}}, "mapping": {"action_logp": "log_p"}}
    with pytest.raises(DataError, match=r"logs.csv, row 1: .*log_p"):
        refuse({"source": str(logs), "config": parse(ImportConfig, values)})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"where": "nope > 3"}, "names the column 'nope'"),
        ({"where": "return >"}, "return >"),
        ({"where_steps": "speed <"}, "speed <"),
        ({"where": "outlier_score < 6"}, "name the folder of the scores"),
    ],
)
def test_a_condition_that_no_episode_can_be_asked_in_any_place_of_a_chain(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        refuse({"root": "runs", "pruning": parse(PruningConfig, values)})


def test_a_name_that_no_registry_takes() -> None:
    with pytest.raises(ConfigError, match="no name of a policy"):
        refuse({"registry": "runs/registry/hvac@champion", "source": "runs/decision", "config": PromotionConfig()})


def test_a_storage_that_does_not_answer_is_left_to_the_stage_which_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any) -> None:
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr("offline_core.plans.refusal.is_dataset", silent)
    refuse({"source": "s3://lake/x", "training": TrainingConfig()})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training": {"algorithm": "td3_bc"}}, r"TD3BC chooses continuous actions; it cannot act in Discrete\(2\)"),
        ({"expert": {"algorithm": "sac"}}, r"SAC chooses continuous actions; it cannot act in Discrete\(2\)"),
    ],
)
def test_algorithms_that_cannot_act_where_a_chain_plays(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    models: dict[str, Any] = {"training": TrainingConfig, "expert": ExpertConfig}
    parameters = {name: parse(model, values.get(name, {})) for name, model in models.items()}
    with pytest.raises(ConfigError, match=message):
        refuse(parameters | {"root": str(tmp_path / "runs")})
    refuse({name: model() for name, model in models.items()} | {"root": str(tmp_path / "runs")})
    assert not (tmp_path / "runs").exists()


def test_an_algorithm_that_cannot_act_in_the_dataset_of_a_chain(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", [episode(0)]).location.uri
    for algorithm, is_refused in (("td3_bc", True), ("cql", False)):
        training = parse(TrainingConfig, {"algorithm": algorithm})
        with pytest.raises(ConfigError, match="cannot act in Discrete") if is_refused else contextlib.nullcontext():
            refuse({"source": data, "root": str(tmp_path / "runs"), "training": training})


def test_a_folder_in_which_a_chain_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"Cannot write .*/file/runs"):
        refuse({"root": str(tmp_path / "file" / "runs")})
