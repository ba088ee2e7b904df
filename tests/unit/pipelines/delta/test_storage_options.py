# SPDX-License-Identifier: Apache-2.0
"""Where tables in object stores are, and how they are reached; a login is never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.delta.storage_options import (
    is_secret,
    read_storage_config,
    split_storage_options,
    table_place,
)
from headrace.pipelines.delta.table import ObjectStorePath, place_of, reason_of

LOGIN = {"aws_access_key_id": "an-id", "aws_secret_access_key": "hush"}


@pytest.mark.parametrize(
    ("written", "uri"),
    [
        ("s3://lake/orders", "s3://lake/orders"),
        ("s3a://lake/orders/", "s3://lake/orders"),
        ("S3://lake//deep/orders", "s3://lake/deep/orders"),
        ("s3://lake", "s3://lake"),
        (
            "abfss://lake@account.dfs.core.windows.net/orders",
            "abfss://lake@account.dfs.core.windows.net/orders",
        ),
        ("gs://lake/orders", "gs://lake/orders"),
    ],
)
def test_places_in_object_stores(written: str, uri: str) -> None:
    assert str(place_of(written, {})) == uri


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("hdfs://host/orders", "only file systems and object stores are supported, not hdfs:"),
        ("s3://id:hush@lake/orders", "a table cannot be at 's3://…@lake/orders'"),
        ("s3:///orders", "a table cannot be at"),
        ("s3://lake/orders?x=hush", "a table cannot be at 's3://lake/orders'"),
        ("s3://lake/../orders", r"write the prefix without \. and \.\."),
    ],
)
def test_other_places_are_refused_without_a_login(written: str, said: str) -> None:
    with pytest.raises(ClientError, match=said) as raised:
        place_of(written, {})
    assert "hush" not in str(raised.value)


def test_storage_options_have_no_meaning_in_a_file_system() -> None:
    assert table_place("/data/orders", {}) == Path("/data/orders")
    with pytest.raises(ClientError, match="where storage options have no meaning"):
        table_place("/data/orders", LOGIN)


def test_options_and_a_file_go_together(tmp_path: Path) -> None:
    file = tmp_path / "s3.properties"
    file.write_text("# of the lake\nAWS_ACCESS_KEY_ID=an-id\naws_secret_access_key = hush\n")
    storage, others = split_storage_options(
        {"path": "s3://lake/orders", "storageconfig": str(file), "storage.aws_region": "eu-central-1"}
    )
    assert storage == {**LOGIN, "aws_region": "eu-central-1"}
    assert others == {"path": "s3://lake/orders"}
    with pytest.raises(ClientError, match=r"'aws_access_key_id' is set by the file .* and by an option"):
        split_storage_options({"storageConfig": str(file), "storage.access_key_id": "other"})


def test_a_file_may_be_json(tmp_path: Path) -> None:
    file = tmp_path / "s3.json"
    file.write_text(json.dumps(LOGIN))
    assert read_storage_config(str(file)) == LOGIN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"aws_secret_access_key": hush}', "is no valid JSON: line 1"),
        ('{"aws_secret_access_key": ["hush"]}', "'aws_secret_access_key' in the file .* is no text"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_without_its_values(
    tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "s3.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ClientError, match=said) as raised:
        read_storage_config(str(file))
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"aws_regoin": "x"}, "there is no storage option 'aws_regoin' for S3; did you mean 'aws_region'"),
        ({"conditional_put": "disabled"}, "'conditional_put' can only be etag"),
        ({"aws_s3_allow_unsafe_rename": "true"}, "'aws_s3_allow_unsafe_rename' is not supported"),
        ({"aws_s3_locking_provider": "dynamodb"}, "protected by conditional puts, not by a lock"),
        ({"aws_endpoint": "http://minio:9000"}, "the endpoint of the object store is http:"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        table_place("s3://lake/orders", options)


def test_conditional_puts_are_always_asked_for() -> None:
    place = table_place("s3://lake/orders", {**LOGIN, "conditional_put": "ETag"})
    assert isinstance(place, ObjectStorePath)
    assert place.options == {**LOGIN, "aws_conditional_put": "etag"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("aws_secret_access_key", "storage.aws_session_token", "account_key")),
        *((name, False) for name in ("aws_region", "aws_access_key_id", "aws_web_identity_token_file")),
    ],
)
def test_secrets(name: str, expected: bool) -> None:
    assert is_secret(name) is expected


def test_a_secret_that_spark_would_show_must_be_in_a_file() -> None:
    with pytest.raises(ClientError, match="account_key' is a secret that Spark would"):
        split_storage_options({"storage.azure_storage_account_key": "hush"})


def test_a_login_is_in_no_representation_and_no_reason() -> None:
    place = table_place("s3://lake/orders", LOGIN)
    assert isinstance(place, ObjectStorePath)
    assert "hush" not in f"{place} {place!r}"
    error = OSError(
        "Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing GET\n <?xml?><Error><Code>Denied</Code>"
        "<Message>no key an-id hush</Message><StringToSign>an-id</StringToSign></Error>"
    )
    assert reason_of(error, place) == "Generic S3 error: Error performing GET: Denied, no key … …"
