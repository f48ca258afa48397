"""The image, the compose file and the manifests, as far as that goes without a daemon and a cluster."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import kubernetes_validate
import pytest
import yaml
from prefect.settings import get_current_settings
from prefect.settings.legacy import _get_valid_setting_names

from deployments import deploy

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deployments"
KUBERNETES = FOLDER / "kubernetes"
KUBERNETES_VERSION = "1.31"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
COMPOSE_SCHEMA = Path(check_jsonschema.__file__).parent / "builtin_schemas/vendor/compose-spec.json"
MANIFESTS = {
    f"{path.stem} {each['kind']} {each['metadata'].get('name', '')}".strip(): each
    for path in sorted(KUBERNETES.glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
    if each["kind"] != "Kustomization"
}
RAY = {name: each for name, each in MANIFESTS.items() if each["apiVersion"] == "ray.io/v1"}
PREFECT_SETTINGS = {name.upper() for name in _get_valid_setting_names(type(get_current_settings()))}
CLUSTER_FIELDS = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
GROUP_FIELDS = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
JOB_FIELDS = {
    "entrypoint",
    "submissionMode",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "backoffLimit",
    "rayClusterSpec",
}
"""Of KubeRay's CRDs 1.5.1 and 1.7.0, by which the manifests were validated, unknown fields refused."""


def clusters() -> Iterator[dict[str, Any]]:
    for each in RAY.values():
        yield each["spec"].get("rayClusterSpec", each["spec"])


def templates() -> Iterator[dict[str, Any]]:
    """The pod templates of all manifests."""
    for each in MANIFESTS.values():
        if each["kind"] == "Deployment":
            yield each["spec"]["template"]
    for cluster in clusters():
        yield from (group["template"] for group in (cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", ())))


def containers() -> Iterator[dict[str, Any]]:
    for template in templates():
        yield from (*template["spec"].get("initContainers", ()), *template["spec"]["containers"])


def test_hadolint_has_nothing_against_the_dockerfile() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_has_the_code_and_what_installs_it_and_no_secrets() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    lines = [line for line in ignored if line and not line.startswith("#")]
    assert lines[0] == "*" and lines[-1] == "**/.env*", "all is left out but what is named, and secrets in the end"
    named = {line.strip("!/") for line in lines if line.startswith("!")}
    assert named >= {"flows", "tasks", "offline_core", "deployments", "pyproject.toml", "setup.py", "constraints.txt"}
    assert all((ROOT / name).exists() for name in named)


def test_the_image_is_made_for_the_python_and_the_ray_that_are_tested() -> None:
    python = re.search(r"ARG PYTHON=(\d+\.\d+)\.", (FOLDER / "Dockerfile").read_text())
    assert python is not None and python[1] == "{}.{}".format(*sys.version_info)
    assert {cluster["rayVersion"] for cluster in clusters()} == {importlib.metadata.version("ray")}


def test_the_compose_file_fits_the_specification() -> None:
    jsonschema.validate(COMPOSE, json.loads(COMPOSE_SCHEMA.read_text()))
    for name, service in COMPOSE["services"].items():
        assert set(service.get("depends_on", {})) <= COMPOSE["services"].keys(), name
        assert all(volume.split(":")[0] in COMPOSE["volumes"] for volume in service.get("volumes", ())), name
        assert re.search(r":\S*\d", service["image"]) and "latest" not in service["image"], name


def test_the_compose_file_publishes_one_port_and_that_on_loopback() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert ports == ["${OFFLINE_SERVER_ADDRESS:-127.0.0.1}:4200:4200"]


@pytest.mark.parametrize("name", [name for name in MANIFESTS if name not in RAY])
def test_manifests_fit_the_schemas_of_kubernetes(name: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], KUBERNETES_VERSION, strict=True)


def test_pods_of_ray_are_pods_and_their_clusters_have_known_fields() -> None:
    for template in templates():
        labelled = {"metadata": {"labels": {"app": "a"}}} | template
        spec = {"selector": {"matchLabels": {"app": "a"}}, "template": labelled}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
        kubernetes_validate.validate(deployment, KUBERNETES_VERSION, strict=True)
    for cluster in clusters():
        assert cluster.keys() <= CLUSTER_FIELDS and cluster["authOptions"] == {"mode": "token"}
        for group in (cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", ())):
            assert group.keys() <= GROUP_FIELDS and all(isinstance(value, str) for value in group["rayStartParams"].values())
    assert all(each["spec"].keys() <= JOB_FIELDS for each in RAY.values() if each["kind"] == "RayJob")


def test_kustomize_lists_all_manifests_but_the_job() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert {*listed, "kustomization.yaml", "ray-job.yaml"} == {path.name for path in KUBERNETES.glob("*.yaml")}


def test_no_container_is_root_or_may_become_it_and_each_asks_for_what_it_needs() -> None:
    for template in templates():
        assert template["spec"]["securityContext"]["runAsNonRoot"] and not template["spec"]["automountServiceAccountToken"]
    for container in containers():
        allowed = container["securityContext"]
        assert not allowed["allowPrivilegeEscalation"] and allowed["capabilities"] == {"drop": ["ALL"]}, container["name"]
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, container["name"]
        assert "memory" in container["resources"]["limits"], container["name"]
    assert re.search(r"^USER 10001", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)


def environment() -> Iterator[tuple[str, object]]:
    """(name, value) of each variable that a container of this project gets; None: from elsewhere."""
    for name, service in COMPOSE["services"].items():
        if service["image"].startswith("offline:"):
            yield from ((each, value) for each, value in service.get("environment", {}).items())
        else:
            assert name in ("database", "store", "store-user")
    for container in containers():
        yield from ((each["name"], each.get("value")) for each in container.get("env", ()))


def test_root_file_systems_are_read_only_and_what_is_written_to_has_a_place() -> None:
    for template in templates():
        spec = template["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, container["name"]
            mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
            assert mounted.keys() >= {"/tmp", "/home/offline"} and {*mounted.values()} <= {
                each["name"] for each in spec["volumes"]
            }
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        places = [each.partition(":")[0] for each in service["tmpfs"]]
        assert "/tmp" in places and ("/home/offline" in places) == service["image"].startswith("offline:"), name


def test_pods_reach_nothing_but_names_each_other_and_two_places_outside() -> None:
    policies = [each for each in MANIFESTS.values() if each["kind"] == "NetworkPolicy"]
    [denied] = [each for each in policies if each["metadata"]["name"] == "default-deny"]
    assert denied["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    outside = []
    for policy in policies:
        for rule in policy["spec"].get("egress", ()):
            assert rule["to"], "an empty list is all"
            blocks = [each["ipBlock"] for each in rule["to"] if "ipBlock" in each]
            outside += [port["port"] for port in rule.get("ports", ()) if blocks]
            assert all(block["except"] == ["169.254.0.0/16"] and rule["ports"] for block in blocks)
    assert sorted(outside) == [443, 5432]
    clients = [each for each in templates() if "prefect-server:4200" in json.dumps(each)]
    assert len(clients) == 2 and all(each["metadata"]["labels"]["offline/prefect-client"] == "true" for each in clients)


def test_what_runs_says_which_places_and_code_parameters_may_name() -> None:
    worker = COMPOSE["services"]["worker"]["environment"]
    running = [worker, *({each["name"]: each.get("value") for each in found.get("env", ())} for found in containers())]
    running = [
        each for each in running if "PREFECT_API_URL" in each and (each is worker or "RAY_HEAD" in each or len(each) > 3)
    ]
    assert len(running) == 3, "the worker of compose, that of Kubernetes, and the job"
    for variables in running:
        assert variables["OFFLINE_ROOTS"] and variables["OFFLINE_IMPORTS"] and "OFFLINE_SIGNING_KEY" in variables


def test_the_worker_is_not_the_root_of_the_store() -> None:
    store, worker, user = (COMPOSE["services"][name]["environment"] for name in ("store", "worker", "store-user"))
    assert worker["AWS_ACCESS_KEY_ID"] != store["MINIO_ROOT_USER"]
    assert (
        "STORE_USER_PASSWORD" in worker["AWS_SECRET_ACCESS_KEY"]
        and user["STORE_USER_PASSWORD"] == worker["AWS_SECRET_ACCESS_KEY"]
    )
    [script] = COMPOSE["services"]["store-user"]["command"]
    assert subprocess.run(["sh", "-n"], input=script.replace("$$", "$"), text=True, check=False).returncode == 0
    policy = script.partition("printf '")[2].partition("'")[0]
    [statement] = json.loads(policy.replace("%s", "lake"))["Statement"]
    assert statement["Resource"] == ["arn:aws:s3:::lake", "arn:aws:s3:::lake/*"]


def test_every_image_of_others_can_be_named_by_digest() -> None:
    example = (FOLDER / "env.example").read_text()
    for name, service in COMPOSE["services"].items():
        if not service["image"].startswith("offline:"):
            variable = re.match(r"\$\{(\w+_IMAGE):-", service["image"])
            assert variable is not None and f"# {variable[1]}=" in example and "@sha256:" in example, name
    assert "@sha256:" in (FOLDER / "Dockerfile").read_text() and "@sha256:" in (KUBERNETES / "kustomization.yaml").read_text()


def test_variables_are_those_that_are_read() -> None:
    """By Prefect, by Ray, by Amazon's client, or by this project's code and the scripts that start containers."""
    code = [*(ROOT / "offline_core").rglob("*.py"), *(ROOT / "flows").glob("*.py"), *FOLDER.glob("*.sh")]
    ours = set(re.findall(r"\b(?:OFFLINE|RAY)_[A-Z_]+|\bAWS_[A-Z_]+", "\n".join(path.read_text() for path in code)))
    used = {name for name, _ in environment()}
    assert {name for name in used if name.startswith("PREFECT_")} <= PREFECT_SETTINGS
    assert {name for name in used if not name.startswith("PREFECT_")} <= ours | {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    example = set(re.findall(r"^(?:# )?([A-Z_]+)=", (FOLDER / "env.example").read_text(), re.MULTILINE))
    named = set(re.findall(r"\$\{(\w+)", (FOLDER / "compose.yaml").read_text())) | used
    assert example <= named, "what the example sets is read by the compose file"


def test_passwords_are_named_and_not_written() -> None:
    for name, value in environment():
        if re.search("AUTH_STRING|SECRET|PASSWORD|TOKEN|CONNECTION_URL", name) and value is not None:
            assert "${" in str(value), f"{name} has a value in the file"


def test_one_setting_switches_authentication_on_for_the_server_and_all_clients() -> None:
    for name, service in COMPOSE["services"].items():
        if {"PREFECT_API_URL", "OFFLINE_SERVER_ADDRESS"} & {*service.get("environment", {})}:
            assert service["environment"]["PREFECT_API_AUTH_STRING"] is None, f"{name}: as .env has it, or not set at all"
    for container in containers():
        names = {each["name"] for each in container.get("env", ())}
        if "PREFECT_API_URL" in names or "start-server.sh" in str(container.get("command")):
            assert "PREFECT_API_AUTH_STRING" in names, container["name"]


def test_what_containers_start_is_there() -> None:
    commands = [
        service["command"]
        for service in COMPOSE["services"].values()
        if service["image"].startswith("offline:") and "command" in service
    ]
    commands += [container["command"] for container in containers() if "command" in container]
    texts = [" ".join(command) for command in commands]
    scripts = {word for text in texts for word in re.findall(r"deployments/[\w.-]+", text)}
    assert scripts == {"deployments/start-server.sh", "deployments/start-worker-on-ray.sh"}
    assert all((ROOT / each).stat().st_mode & 0o111 for each in scripts)
    assert {text.split()[0] for text in texts} <= {"prefect", "python", *scripts}
    assert {text for text in texts if text.startswith("python")} == {f"python -m {deploy.__name__}"}
