"""Credentials: how a deployment gets them from Prefect's blocks, and that nobody finds them anywhere afterwards."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.store.location import Location
from offline_core.errors import LocationError
from tests.e2e.orchestra import POOL, Orchestra, checkout
from tests.object_storage.conftest import client

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-key-7311",
    "AWS_SESSION_TOKEN": "token-of-the-session-7312",
    "ARCHIVE_SECRET": "secret-of-the-archive-7313",
}


@pytest.mark.parametrize(
    "uri",
    ["s3://key:hidden@bucket/x", "s3://key:hid/hidden@bucket/x", "s3://:hidden@bucket", "sftp://me:hidden@host/x"],
)
def test_a_uri_with_credentials_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(LocationError, match="has credentials in it: write it without them") as raised:
        Location.of(uri)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("rest", ["bucket/a:b@c", "bucket/x@y", "bucket"])
def test_what_only_looks_like_credentials_is_a_name(rest: str) -> None:
    assert Location.of(f"s3://{rest}").path == rest


def test_an_account_in_a_host_is_no_secret() -> None:
    assert Location.of("abfs://container@account.dfs.core.windows.net/x").path == "container/x"


DEPLOYMENTS = """
deployments:
  - name: secret
    entrypoint: flows/expert_to_policy.py:expert_to_policy
    work_pool: &pool
      name: offline
      job_variables: { env: { OFFLINE_RAY_CPUS: "2", OFFLINE_RAY_OBJECT_STORE_BYTES: "100000000" } }
  - name: secret
    entrypoint: flows/stages.py:compact
    work_pool: *pool
"""
CHAIN: dict[str, Any] = {
    "expert": {"total_steps": 8000, "num_envs": 16, "evaluation": {"target_return": 30, "episodes": 3}},
    "recording": {"episodes": 20, "num_recorders": 1, "envs_per_recorder": 4},
    "training": {"data": {"prelearners": 1}, "optimizer": {"max_epochs": 2}, "evaluation": {"episodes": 3}},
    "evaluation": {"episodes": 3},
}
SAVE_BLOCKS = """
import os
from prefect.blocks.system import Secret
for name in {names!r}:
    Secret(value=os.environ[name]).save(name.lower().replace("_", "-"))
"""


def block(name: str) -> str:
    """What stands for the secret until a worker starts a run."""
    return f"{{{{ prefect.blocks.secret.{name.lower().replace('_', '-')} }}}}"


@pytest.fixture
def orchestra(bucket: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchestra]:
    """A server that knows the secrets as blocks, a pool that names those for s3, and a worker that has none of them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    host = s3_endpoint.removeprefix("http://")
    arguments = {"access_key": "key", "secret_key": "${ARCHIVE_SECRET}", "endpoint_override": host, "scheme": "http"}
    archive = {"filesystem": "pyarrow.fs:S3FileSystem", "arguments": arguments, "one_writer": True}
    with (
        tempfile.TemporaryDirectory(prefix="ray-") as ray_folder,  # a short name, for sockets
        Orchestra.with_server(
            home=tmp_path / "prefect",
            root=checkout(tmp_path / "checkout"),
            RAY_TMPDIR=ray_folder,
            OFFLINE_FILESYSTEMS=json.dumps({"archive": archive}),
        ) as started,
    ):
        started.run([sys.executable, "-c", SAVE_BLOCKS.format(names=list(SECRETS))], **SECRETS)
        pool = started.root / "pool.json"
        started.prefect("work-pool", "get-default-base-job-template", "--type", "process", "--file", str(pool))
        template = json.loads(pool.read_text())
        template["variables"]["properties"]["env"]["default"] = {
            "AWS_ACCESS_KEY_ID": "key",
            **{name: block(name) for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")},
        }
        pool.write_text(json.dumps(template))
        started.prefect("work-pool", "create", POOL, "--type", "process", "--base-job-template", str(pool))
        (started.root / "secret.yaml").write_text(DEPLOYMENTS)
        started.prefect("--no-prompt", "deploy", "--all", "--prefect-file", "secret.yaml")
        started.start_worker()
        yield started


@pytest.mark.slow
def test_blocks_give_a_run_its_secrets_and_nothing_keeps_them(orchestra: Orchestra, bucket: str, s3_endpoint: str) -> None:
    """Neither what went well nor what failed: data, cards, Prefect's database, logs of Prefect's and Ray's processes."""
    chain = orchestra.submit("expert-to-policy/secret", CHAIN | {"root": f"{bucket}/chain"})
    orchestra.wait_for(chain, "COMPLETED")
    archived = {"dataset": f"{bucket}/chain/recording", "output": f"archive://{bucket.removeprefix('s3://')}/archived"}
    for_one_run = {"env": {"ARCHIVE_SECRET": block("ARCHIVE_SECRET")}}
    orchestra.wait_for(orchestra.submit("compact/secret", archived, job_variables=for_one_run), "COMPLETED")
    refused = orchestra.submit("compact/secret", archived | {"output": "s3://no-such-bucket/x"})
    orchestra.wait_for(refused, "FAILED")
    assert "bucket does not exist" in orchestra.flow_run(refused)["state"]["message"]
    orchestra.wait_for_worker(refused)

    for path in (
        "/flow_runs/filter",
        "/deployments/filter",
        "/artifacts/filter",
        "/work_pools/filter",
        "/block_documents/filter",
    ):
        assert revealed_in(json.dumps(orchestra.ask("POST", path, {})).encode()) == [], path
    objects = objects_of(bucket, s3_endpoint)
    assert {key.partition("/")[0] for key in objects} == {"chain", "archived"}
    assert {key: found for key, data in objects.items() if (found := revealed_in(data))} == {}
    written = {
        path: path.read_bytes()
        for folder in (orchestra.home, orchestra.root / "runs", Path(orchestra.environment["RAY_TMPDIR"]))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    assert {"prefect.db", "worker.log"} <= {path.name for path in written}
    assert not any(path.is_relative_to(orchestra.environment["RAY_TMPDIR"]) for path in written), "Ray's logs went with it"
    assert {str(path): found for path, data in written.items() if (found := revealed_in(data))} == {}


def revealed_in(data: bytes) -> list[str]:
    """Names of the secrets that are in there."""
    return [name for name, secret in SECRETS.items() if secret.encode() in data]


def objects_of(bucket: str, endpoint: str) -> dict[str, bytes]:
    """All there is in a bucket."""
    found = client(endpoint)
    name = bucket.removeprefix("s3://")
    pages = found.get_paginator("list_objects_v2").paginate(Bucket=name)
    keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
    return {key: found.get_object(Bucket=name, Key=key)["Body"].read() for key in keys}
