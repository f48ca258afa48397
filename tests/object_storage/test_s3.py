"""S3, on a server of its own: what every place has to do, and what only S3 has."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from offline_core.data.datasets.commit import prepare_dataset
from offline_core.data.store import object_store, s3
from offline_core.data.store.location import Location
from offline_core.data.store.s3 import S3Settings, S3Store
from offline_core.errors import ConfigError, StorageError, StorageUnavailableError, VersionExistsError
from tests.object_storage.conftest import SETTINGS, client
from tests.object_storage.contract import ServedContract, ServedEssentials
from tests.object_storage.faults import Answer, Fault, LoseAnswer, Proxy, Request, Wait, refusal
from tests.waiting import wait_until

HERE = Path(__file__).parents[2]


@pytest.fixture
def boto(bucket: str, s3_endpoint: str) -> Any:
    return client(s3_endpoint)


def name_of(uri: str) -> str:
    return urlsplit(uri).netloc


def put_file(place: Location, data: bytes) -> None:
    file = place.store.new_file(place.path)
    file.write(data)
    place.store.put_file(file, place.path)


@pytest.fixture
def place(bucket: str) -> str:
    return f"{bucket}/runs"


@pytest.fixture
def denied(place: str, proxied: Proxy) -> Location:
    proxied.plan = lambda request: refusal(403, "AccessDenied")
    return Location.of(place).child("x")


class TestS3(ServedEssentials, ServedContract):
    """See there."""


# Files.


def test_boto_sees_the_same(bucket: str, boto: Any) -> None:
    file = Location.of(f"{bucket}/a/b c/ü.txt")
    file.write(b"one")
    assert boto.get_object(Bucket=name_of(bucket), Key="a/b c/ü.txt")["Body"].read() == b"one"
    boto.put_object(Bucket=name_of(bucket), Key="a/b c/ü.txt", Body=b"another")
    assert file.read() == b"another"


def test_empty_objects_are_told_from_marks_of_folders(bucket: str, boto: Any) -> None:
    """As earlier versions and Amazon's console write them: obstore leaves out the slash at their end."""
    for key in ("a/", "a/empty", "a/folder/", "a/full/", "a/full/x", "b/"):
        boto.put_object(Bucket=name_of(bucket), Key=key, Body=b"")
    root = Location.of(bucket)
    assert root.sizes() == {"a/empty": 0, "a/full/x": 0}
    assert {info.base_name for info in root.listed() if not info.is_file} == {"a", "folder", "full", "b"}
    assert (root.child("a").files(recursive=False), root.child("a").folders()) == (["empty"], ["folder", "full"])
    assert [root.child(name).is_folder() for name in ("a/folder", "b", "a/empty", "c")] == [True, True, False, False]
    root.child("a").delete_folder()
    assert [info.base_name for info in root.listed()] == ["b"]


def test_a_retried_create_that_finds_its_own_bytes_succeeds(bucket: str, proxied: Proxy) -> None:
    """The first put was carried out and its answer lost; the second one is refused, and was meant all the same."""
    lost = LoseAnswer()

    def plan(request: Request) -> Fault | None:
        return lost if request.method == "PUT" and request.nth == 1 else None

    proxied.plan = plan
    file = Location.of(f"{bucket}/v/000001.json")
    file.create(b"mine")
    assert proxied.faults == [lost]
    wait_until(lambda: len(proxied.seen) == 3, what="the read to be noted")
    assert [each.request.method for each in proxied.seen] == ["PUT", "PUT", "GET"]
    with pytest.raises(VersionExistsError):
        file.create(b"another's")
    assert file.read() == b"mine"


def test_a_conflicting_create_is_retried(bucket: str, proxied: Proxy) -> None:
    """As Amazon says to; and gives up in the end."""
    conflict = refusal(409, "ConditionalRequestConflict")
    proxied.plan = lambda request: conflict if request.method == "PUT" and request.nth < 3 else None
    file = Location.of(f"{bucket}/v/000001.json")
    file.create(b"mine")
    assert file.read() == b"mine"
    assert proxied.faults == [conflict, conflict]
    proxied.plan = lambda request: conflict
    with pytest.raises(StorageUnavailableError, match="ConditionalRequestConflict"):
        Location.of(f"{bucket}/v/000002.json").create(b"mine")
    wait_until(lambda: len(proxied.faults) == 2 + object_store.CREATE_ATTEMPTS, what="the last attempt to be noted")


def test_a_file_is_deleted_by_one_request(bucket: str, proxied: Proxy) -> None:
    file = Location.of(f"{bucket}/a/x")
    file.write(b"1")
    for _ in range(2):
        file.delete()
    assert not file.is_file()
    assert [each.request.method for each in proxied.seen if each.request.path.endswith("/a/x")][:3] == [
        "PUT",
        "DELETE",
        "DELETE",
    ]
    assert not [each for each in proxied.seen if each.request.path.endswith("/a/")]


@pytest.mark.parametrize(("most", "parts"), [(10_000, 3), (2, 2)])
def test_large_files_go_in_parts(bucket: str, boto: Any, monkeypatch: pytest.MonkeyPatch, most: int, parts: int) -> None:
    """In larger ones, if a server allows no more of them."""
    monkeypatch.setattr(object_store, "PART_BYTES", 5 * 2**20)
    monkeypatch.setattr(object_store, "MOST_PARTS", most)
    data = os.urandom(11 * 2**20)
    place = Location.of(f"{bucket}/large")
    put_file(place, data)
    assert place.read() == data
    assert boto.head_object(Bucket=name_of(bucket), Key="large")["ETag"].endswith(f'-{parts}"')


def test_what_takes_long_to_send_may_be_answered_late(bucket: str, proxied: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a slow line, where nothing is wrong. What is small is given up, and asked for again as long as it is worth it."""
    monkeypatch.setattr(object_store, "ANSWER_SECONDS", 0.3)
    proxied.plan = lambda request: Wait(1.0) if request.method == "PUT" and request.nth == 1 else None
    place = Location.of(f"{bucket}/large")
    put_file(place, bytes(2 * 2**20))
    place.parent.child("small").write(b"x")
    assert [each.request.path.rpartition("/")[2] for each in proxied.seen if each.request.method == "PUT"].count("large") == 1
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.1)
    with pytest.raises(StorageUnavailableError, match="no answer in time"):
        place.parent.child("other").write(b"x")


def test_who_is_told_that_a_file_exists_which_is_deleted_then(bucket: str, proxied: Proxy) -> None:
    proxied.plan = lambda request: refusal(412, "PreconditionFailed") if request.method == "PUT" else None
    with pytest.raises(VersionExistsError, match="another writer was first"):
        Location.of(f"{bucket}/v/000001.json").create(b"mine")


def test_a_killed_writer_leaves_nothing_on_this_machine(bucket: str, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from offline_core.data.store.location import Location\n"
        "place = Location.of(sys.argv[1]); file = place.store.new_file(place.path); file.write(bytes(2**20)); file.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code, f"{bucket}/runs/x"], cwd=HERE, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
    assert Location.of(f"{bucket}/runs").files() == []


# Folders and buckets.


def test_a_folder_is_there_and_both_see_it(bucket: str) -> None:
    folder = Location.of(f"{bucket}/runs/demo")
    assert not folder.is_folder()
    folder.make_folder()
    assert folder.is_folder() and folder.files() == []
    assert Location.of(f"{bucket}/runs").is_folder()
    folder.make_folder()


def test_marks_of_folders_go_however_many_pages_they_fill(bucket: str, boto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        boto.put_object(Bucket=name_of(bucket), Key=f"a/{number}/", Body=b"")
    ask = S3Store._ask

    def by_twos(self: S3Store, operation: str, bucket: str, **arguments: Any) -> Any:
        return ask(self, operation, bucket, **arguments, **({"MaxKeys": 2} if operation == "list_objects_v2" else {}))

    monkeypatch.setattr(S3Store, "_ask", by_twos)
    Location.of(f"{bucket}/a").delete_folder()
    assert "Contents" not in boto.list_objects_v2(Bucket=name_of(bucket))


def test_a_whole_bucket_is_a_folder(bucket: str, boto: Any) -> None:
    root = Location.of(bucket).make_folder()
    assert root.files() == [] and "Contents" not in boto.list_objects_v2(Bucket=name_of(bucket))
    for key in ("a", "b/c"):
        boto.create_multipart_upload(Bucket=name_of(bucket), Key=key)
    assert root.store.abort_uploads(root.path, older_than_days=-1) == 2
    with pytest.raises(StorageError, match=r"the bucket does not exist: create it, or correct its name"):
        Location.of(f"{bucket}-not-there").make_folder()


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_a_bucket_that_is_missing_is_created_only_if_that_was_asked_for(
    bucket: str, boto: Any, monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    missing = f"{bucket}-of-{region}"
    with pytest.raises(StorageError, match=r"the bucket does not exist: create it, or correct its name"):
        Location.of(f"{missing}/runs").make_folder()
    monkeypatch.setenv("AWS_REGION", region)
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", '{"s3": {"filesystem": "s3", "arguments": {"create_bucket": true}}}')
    with pytest.raises(StorageError, match=r"the bucket does not exist"):
        Location.of(f"{missing}/runs/x").write(b"")  # files are only written to folders that were made
    for _ in range(2):
        assert Location.of(f"{missing}/runs").make_folder().is_folder()
    found = boto.get_bucket_location(Bucket=name_of(missing))["LocationConstraint"]
    assert found == (None if region == "us-east-1" else region)


def test_two_that_create_a_bucket_both_have_it(bucket: str) -> None:
    store = S3Store(S3Settings.of({"create_bucket": True}))
    for _ in range(2):
        store._create_bucket(f"{name_of(bucket)}-twice")


@pytest.mark.slow
def test_more_files_than_a_page_holds(bucket: str, boto: Any) -> None:
    names = [f"{i // 700}/{i:05d}" for i in range(1010)]
    for name in names:
        boto.put_object(Bucket=name_of(bucket), Key=f"many/{name}", Body=b"x")
    folder = Location.of(f"{bucket}/many")
    assert folder.files() == names
    assert folder.files(recursive=False) == []
    assert folder.child("1").files() == [name[2:] for name in names if name.startswith("1/")]


# Who and where.


def test_a_link_shows_a_file_without_a_secret_key(bucket: str) -> None:
    file = Location.of(f"{bucket}/card.html")
    file.write(b"<p>hello</p>")
    link = file.link()
    assert link is not None
    assert httpx.get(link).content == b"<p>hello</p>"
    assert SETTINGS["AWS_SECRET_ACCESS_KEY"] not in link
    assert f"X-Amz-Expires={24 * 3600}" in link and "X-Amz-Signature=" in link
    assert S3Store(S3Settings.of({"anonymous": True})).link(file.path) is None


def test_there_is_no_link_where_it_would_contain_a_session_token(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-not-to-be-kept")
    assert (
        S3Store(S3Settings.of({"region": "eu-south-2"})).link(f"{bucket}/card.html") is None
    )  # credentials are kept by settings


def test_settings_come_from_the_usual_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "AWS_ENDPOINT_URL": "http://general:1",
        "AWS_ENDPOINT_URL_S3": "http://special:1",
        "AWS_DEFAULT_REGION": "eu-north-1",
        "AWS_PROFILE": "mine",
        "AWS_NO_SIGN_REQUEST": "True",
        "AWS_SECRET_ACCESS_KEY": SETTINGS["AWS_SECRET_ACCESS_KEY"],
    }
    found = S3Settings.of({}, environment)
    assert found.endpoint == "http://special:1"
    assert (found.region, found.profile, found.anonymous) == ("eu-north-1", "mine", True)
    assert S3Settings.of({"region": "us-west-2"}, environment).region == "us-west-2"
    store = S3Store(found)
    assert SETTINGS["AWS_SECRET_ACCESS_KEY"].encode() not in pickle.dumps(store) + repr(store).encode()
    assert pickle.loads(pickle.dumps(store)) == store


def test_a_profile_says_where_and_who(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: Proxy) -> None:
    (tmp_path / "config").write_text(f"[profile mine]\nregion = eu-west-3\nendpoint_url = {proxied.url}\n")
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = key-of-mine\naws_secret_access_key = hidden\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    file = Location.of(f"{bucket}/of-mine")
    file.write(b"x")
    assert file.read() == b"x"
    assert {each.user for each in proxied.seen} == {"key-of-mine"}
    assert {each.region for each in proxied.seen} == {"eu-west-3"}


@pytest.mark.slow
def test_a_profile_s_endpoint_inside_of_amazon_s_network_holds_for_both(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = "https://bucket.vpce-1a2b.s3.us-east-1.vpce.amazonaws.com"
    (tmp_path / "config").write_text(f"[profile vpc]\nendpoint_url = {endpoint}\n[profile public]\n")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for profile, expected in (("vpc", (endpoint, True)), ("public", ("https://s3.amazonaws.com", False))):
        assert s3._endpoint(S3Settings.of({"profile": profile})) == expected


def test_buckets_are_in_the_path_or_in_the_name_of_the_server(
    bucket: str, proxied: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Location.of(f"{bucket}/x")
    file.write(b"x")
    assert file.read() == b"x"
    assert {each.request.path.partition("?")[0] for each in proxied.seen} == {f"/{name_of(bucket)}/x"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://storage.example")
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", '{"s3": {"filesystem": "s3", "arguments": {"path_style": false}}}')
    link = Location.of(f"{bucket}/x").link()
    assert link and link.startswith(f"http://{name_of(bucket)}.storage.example/x?")


def test_no_bucket_with_a_dot_is_put_before_a_server_s_name(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its certificate would not fit."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://storage.example")
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", '{"s3": {"filesystem": "s3", "arguments": {"path_style": false}}}')
    for name, server in (("my.bucket", "storage.example/my.bucket"), ("my-bucket", "my-bucket.storage.example")):
        link = Location.of(f"s3://{name}/x").link()
        assert link and link.startswith(f"https://{server}/x?")


@pytest.mark.parametrize("path_style", [True, False])
def test_the_way_to_name_buckets_needs_no_server_named(path_style: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose first word to Amazon is a write, as those of recorders are."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    settings = S3Settings.of({"path_style": path_style, "region": "eu-west-1"})
    made: list[Any] = []
    maker = threading.Thread(target=lambda: made.append(s3._boto_client(settings, 1.0)), daemon=True)
    maker.start()
    maker.join(60)
    assert made and made[0].meta.endpoint_url == "https://s3.eu-west-1.amazonaws.com"


def test_anonymous_access_sends_no_credentials(bucket: str, boto: Any, proxied: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "true")
    boto.put_object(Bucket=name_of(bucket), Key="public", Body=b"x", ACL="public-read")
    file = Location.of(f"{bucket}/public")
    assert file.read() == b"x"
    assert {each.user for each in proxied.seen} == {""}


# What killed writers leave.


def test_unfinished_uploads_go_after_a_week(bucket: str, boto: Any, proxied: Proxy) -> None:
    """The server here does not know how old they are, so that is put into its mouth, on two pages."""
    days = {"data/a/1": 8.0, "data/a/2": 6.9, "data/b": 7.1}
    ids = {key: boto.create_multipart_upload(Bucket=name_of(bucket), Key=key)["UploadId"] for key in (*days, "database/1")}
    asked: list[str] = []

    def page(key: str) -> str:
        begun = (datetime.now(UTC) - timedelta(days=days[key])).isoformat()
        return f"<Upload><Key>{key}</Key><UploadId>{ids[key]}</UploadId><Initiated>{begun}</Initiated></Upload>"

    def plan(request: Request) -> Fault | None:
        if request.method != "GET" or "uploads" not in request.path:
            return None
        asked.append(request.path)
        first = "key-marker" not in request.path
        found = "".join(map(page, list(days)[:2] if first else list(days)[2:]))
        more = "<NextKeyMarker>data/a/2</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>" if first else ""
        truncated = f"<IsTruncated>{str(first).lower()}</IsTruncated>"
        return Answer(200, f"<ListMultipartUploadsResult>{truncated}{more}{found}</ListMultipartUploadsResult>")

    proxied.plan = plan
    prepare_dataset(f"{bucket}/data")
    left = [each["Key"] for each in boto.list_multipart_uploads(Bucket=name_of(bucket))["Uploads"]]
    assert sorted(left) == ["data/a/2", "database/1"]
    assert len(asked) == 2 and "prefix=data%2F" in asked[0] and "key-marker=data%2Fa%2F2" in asked[1]


def test_credentials_in_an_endpoint_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://key:hidden@127.0.0.1:1")
    with pytest.raises(ConfigError, match="has credentials in it: write it without them") as caught:
        Location.of("s3://bucket/x")
    assert "hidden" not in str(caught.value)
