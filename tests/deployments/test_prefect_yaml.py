"""deployments/prefect.yaml without a server: Prefect takes nearly anything there, and ignores what it does not know."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from prefect.cli.deploy._models import (
    ConcurrencyLimitSpec,
    DeploymentConfig,
    PrefectYamlModel,
    RawScheduleConfig,
    WorkPoolConfig,
)
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.client.schemas.schedules import CronSchedule
from prefect.utilities.importtools import import_object
from pydantic import BaseModel, ConfigDict

from deployments.definitions import PREFECT_FILE, definitions, flow_of, profile_of
from deployments.serve import served
from offline_core.runtime.provenance import provenance
from offline_core.runtime.ray_session import CPUS_VARIABLE, OBJECT_STORE_VARIABLE
from offline_core.runtime.stage import STAGES
from tests.deployments.flows import DEPLOYMENTS, EXAMPLES, FLOWS

DEFINITIONS = definitions()
TRAINING = {
    "expert-to-policy",
    "logs-to-policy",
    "improve-policy",
    "train-expert",
    "train",
    "fine-tune",
    "sweep",
}


def name_of(definition: dict[str, Any]) -> str:
    return f"{flow_of(definition['entrypoint']).name}/{definition['name']}"


def refuse_unknown(model: type[BaseModel], values: dict[str, Any]) -> None:
    """Validates with a model of Prefect's that, other than Prefect itself, takes no key it does not know."""
    type("Strict", (model,), {"model_config": ConfigDict(extra="forbid"), "__module__": model.__module__})(**values)


def test_every_flow_is_there_in_every_profile_and_nothing_twice() -> None:
    names = [name_of(each) for each in DEFINITIONS]
    assert sorted(names) == sorted(DEPLOYMENTS)


def test_every_flow_of_the_house_is_deployed() -> None:
    chains = {path.stem for path in (PREFECT_FILE.parents[1] / "flows").glob("*.py") if "@flow(" in path.read_text()}
    assert chains | {each.attribute for each in STAGES.values()} == {flow.fn.__name__ for flow in FLOWS}


def test_make_demo_distributed_runs_what_is_deployed() -> None:
    (deployed,) = (each for each in DEFINITIONS if name_of(each) == "expert-to-policy/expert-to-policy-distributed")
    example = yaml.safe_load((EXAMPLES / "distributed.yaml").read_text())
    assert {name: yaml.safe_load(value) for name, value in deployed["parameters"].items() if name != "root"} == example


def test_the_file_has_nothing_that_prefect_would_ignore() -> None:
    content = yaml.safe_load(PREFECT_FILE.read_text())
    assert set(content) <= set(PrefectYamlModel.model_fields)


def test_it_names_no_block() -> None:
    """Prefect would keep the block's value in the deployment, a secret's too."""
    assert "prefect.blocks" not in PREFECT_FILE.read_text()


def test_the_version_is_that_of_the_code() -> None:
    (step,) = yaml.safe_load(PREFECT_FILE.read_text())["build"]
    (function,) = step
    assert import_object(function) is provenance and step[function] == {"id": "code"}
    assert {each["version"] for each in DEFINITIONS} == {"{{ code.git }}"}


def test_it_has_nothing_that_prefect_would_ignore() -> None:
    for definition in DEFINITIONS:
        refuse_unknown(DeploymentConfig, definition)
        refuse_unknown(WorkPoolConfig, definition["work_pool"])
        assert set(definition["work_pool"]["job_variables"]) == {"env"}, "of a process pool"
        for schedule in definition.get("schedules", ()):
            RawScheduleConfig(**schedule)
        if "concurrency_limit" in definition:
            refuse_unknown(ConcurrencyLimitSpec, definition["concurrency_limit"])


def test_its_parameters_fit_the_flow() -> None:
    """Prefect's API takes names it does not know, and the values of models only when they run."""
    for definition in DEFINITIONS:
        flow = flow_of(definition["entrypoint"])
        parameters = definition.get("parameters", {})
        assert set(parameters) <= set(flow.parameters.properties)
        flow.validate_parameters(parameters)


def test_its_environment_is_text_of_settings_that_are_read() -> None:
    for definition in DEFINITIONS:
        environment = definition["work_pool"]["job_variables"]["env"]
        assert set(environment) <= {CPUS_VARIABLE, OBJECT_STORE_VARIABLE}
        assert all(isinstance(value, str) for value in environment.values())


def test_nothing_starts_by_itself() -> None:
    for definition in DEFINITIONS:
        schedules = definition.get("schedules", [])
        assert [schedule["active"] for schedule in schedules] == [False] * (profile_of(definition) == "nightly")
        for schedule in schedules:
            CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
            assert schedule["slug"], "without one, Prefect cannot tell it from a new one at the next deploy"


def test_one_training_at_a_time() -> None:
    for definition in DEFINITIONS:
        limit = {"limit": 1, "collision_strategy": "ENQUEUE"} if flow_of(definition["entrypoint"]).name in TRAINING else None
        assert definition.get("concurrency_limit") == limit
        if limit:
            ConcurrencyLimitConfig(**limit)


def test_profiles_do_not_write_where_others_do() -> None:
    for definition in DEFINITIONS:
        parameters = definition.get("parameters", {})
        written = str(parameters.get("output") or parameters.get("root") or parameters.get("registry") or "")
        profile = profile_of(definition)
        if profile in ("default", "short"):
            assert not written
        elif not re.search("check|evaluate|estimate|publish", definition["entrypoint"]):
            assert f"{written}/".startswith(f"runs/{profile}/")


def test_a_process_serves_what_the_pool_would_run() -> None:
    for definition in DEFINITIONS:
        offered = served(definition)
        assert f"{offered.flow_name}/{offered.name}" == name_of(definition)
        assert offered.parameters == definition.get("parameters", {})
        assert offered.tags == definition["tags"]
        assert [schedule.active for schedule in offered.schedules or []] == [
            schedule["active"] for schedule in definition.get("schedules", [])
        ]
        assert offered.concurrency_limit == definition.get("concurrency_limit", {}).get("limit")


@pytest.mark.slow
def test_deploying_loads_neither_torch_nor_ray() -> None:
    """Forms and schedules are about parameters; what computes is loaded by the run that does."""
    script = "import sys, deployments.serve, tests.deployments.flows; print(*sorted({'torch', 'ray'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
