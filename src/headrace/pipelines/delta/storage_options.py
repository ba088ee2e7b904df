# SPDX-License-Identifier: Apache-2.0
"""Options that reach an object store: `storage.aws_region` and so on, or a file named by `storageConfig`.

Names are those of deltalake. They are read in the driver; the values travel to the workers, and no error or
page shows one that is secret. Read next: table.py, conditional_puts.py.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from headrace.client.client_config import read_client_config
from headrace.client.errors import ClientError
from headrace.pipelines.delta.table import ObjectStorePath, TablePlace, place_of

PREFIX = "storage."
FILE = "storageConfig"

_S3 = (
    *("access_key_id", "secret_access_key", "session_token", "token", "region", "default_region"),
    *("endpoint", "endpoint_url", "endpoint_url_s3", "virtual_hosted_style_request", "profile"),
    *("role_arn", "role_session_name", "web_identity_token_file", "endpoint_url_sts", "imdsv1_fallback"),
    *("metadata_endpoint", "container_credentials_relative_uri", "container_credentials_full_uri"),
    *("container_authorization_token_file", "force_credential_load", "iam_role_arn"),
    *("iam_role_session_name", "skip_signature", "unsigned_payload", "checksum_algorithm"),
    *("conditional_put", "copy_if_not_exists", "disable_tagging", "request_payer", "s3_express"),
    *("server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled", "sse_customer_key_base64"),
)
"""With or without `aws_`."""
_ANY_STORE = (
    *("allow_http", "allow_invalid_certificates", "certificate_path", "connect_timeout", "timeout"),
    *("http1_only", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url"),
    *("proxy_ca_certificate", "proxy_excludes", "randomize_addresses", "user_agent", "max_retries"),
    *("retry_timeout", "backoff_config.init_backoff", "backoff_config.base", "backoff_config.max_backoff"),
    "max_buffer_size",
)
_UNSAFE = {
    "s3_allow_unsafe_rename": "commits of two drivers at once would overwrite each other",
    "s3_locking_provider": "commits are protected by conditional puts, not by a lock",
}
_SECRET = re.compile(
    r"secret|password|token(?!_file)|access_key$|account_key|storage_key|sas_key|key_base64|service_account_key"
)
_HIDDEN_BY_SPARK = re.compile(r"secret|password|token|access[.]?key|url")
"""Spark's own defaults, in sessions that `spark_session` did not make."""


def is_storage_option(name: str) -> bool:
    lower = name.lower()
    return lower == FILE.lower() or lower.startswith(PREFIX)


def is_secret(name: str) -> bool:
    """Of a storage option, with or without `storage.`, whose value must not be shown."""
    return _SECRET.search(name.lower().removeprefix(PREFIX)) is not None


def split_storage_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return (storage options by deltalake's names, other options)."""
    others = {name: value for name, value in options.items() if not is_storage_option(name)}
    ours = {name.lower(): value for name, value in options.items() if name not in others}
    file = ours.pop(FILE.lower(), None)
    given = {name.removeprefix(PREFIX): value for name, value in ours.items()}
    for name in given:
        if is_secret(name) and not _HIDDEN_BY_SPARK.search(name):
            raise ClientError(
                f"option '{PREFIX}{name}' is a secret that Spark would show in its pages",
                next_step=f"write it into a file, and name that: .option({FILE!r}, …)",
            )
    return storage_options(given, file), others


def storage_options(given: Mapping[str, str], file: str | None) -> dict[str, str]:
    """Options and those of a file together; ClientError for a name that both have."""
    found = {} if file is None else read_storage_config(file)
    for name, value in given.items():
        lower = name.lower()
        same = next((other for other in found if _meaning(other) == _meaning(lower)), None)
        if same is not None:
            raise ClientError(
                f"{same!r} is set by the file {file} and by an option"
                if file is not None and same not in given
                else f"storage options {same!r} and {lower!r} mean the same",
                next_step="set only one of them",
            )
        found[lower] = value.strip()
    return found


def read_storage_config(file: str) -> dict[str, str]:
    """The settings of a file: lines of name=value, or a JSON object. Errors never show a value."""
    path = Path(file).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ClientError(
            f"the file {path} with storage options cannot be read: {reason}",
            next_step="check the path; the driver reads it",
        ) from None
    if not text.lstrip().startswith("{"):
        return {name.lower(): value.strip() for name, value in read_client_config(path).items()}
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ClientError(
            f"the file {path} is no valid JSON: line {error.lineno}", next_step='write {"aws_region": "…"}'
        ) from None
    wrong = next((name for name, value in document.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise ClientError(f"{wrong!r} in the file {path} is no text", next_step="write its value in quotes")
    return {name.lower(): value.strip() for name, value in document.items()}


def table_place(written: str, options: Mapping[str, str]) -> TablePlace:
    """The place of a table with checked storage options; a commit there requires conditional puts."""
    place = place_of(written, options)
    if not isinstance(place, ObjectStorePath) or not place.is_s3:
        return place
    by_meaning = {_meaning(name): value for name, value in place.options.items()}
    for name in place.options:
        _check_name(name, by_meaning)
    if by_meaning.get("conditional_put", "etag").lower() != "etag":
        raise ClientError(
            "storage option 'conditional_put' can only be etag: without conditional puts two drivers would "
            "overwrite each other's commits",
            next_step="leave it out; the store must enforce If-None-Match",
        )
    endpoint = by_meaning.get("endpoint", by_meaning.get("endpoint_url", ""))
    if endpoint.lower().startswith("http:") and by_meaning.get("allow_http", "").lower() != "true":
        raise ClientError(
            "the endpoint of the object store is http:, without encryption",
            next_step="use https:, or allow it: .option('storage.aws_allow_http', True)",
        )
    others = {name: value for name, value in place.options.items() if _meaning(name) != "conditional_put"}
    # Named, so that a variable of the environment cannot turn it off.
    return ObjectStorePath(uri=place.uri, options={**others, "aws_conditional_put": "etag"})


def _check_name(name: str, given: Mapping[str, str]) -> None:
    meaning = _meaning(name)
    if meaning in _UNSAFE:
        raise ClientError(
            f"storage option {name!r} is not supported: {_UNSAFE[meaning]}", next_step="leave it out"
        )
    known = (*_S3, *_ANY_STORE)
    if meaning not in known:
        near = difflib.get_close_matches(meaning, known, n=1)
        prefix = "aws_" if near and near[0] in _S3 else ""
        raise ClientError(
            f"there is no storage option {name!r} for S3",
            next_step=f"did you mean {prefix + near[0]!r}?" if near else "docs/pipelines.md names them",
        )


def _meaning(name: str) -> str:
    return name.lower().removeprefix("aws_")
