# SPDX-License-Identifier: Apache-2.0
"""The reply that reports one error for everything that a request asks for.

A reply has the shape of its request: for each list in the reply there is one in the request whose items have
the same identity (topic, partition, group). So one walk over both makes the reply of almost every API.
Read next: client_link.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.testing.embedded.message_fields import field_specs, plain_fields
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.schema import FieldSpec, fields_of, message_class
from headrace.wire.messages import decode_reply, encode_reply

_SAME = {
    "id": "name",
    "index": "partition_index",
    "partition": "partition_index",
    "partition_id": "partition_index",
    "topic": "name",
    "user": "name",
}
"""Field names that mean the same in requests and replies of one API."""
_IDENTITY = {
    "entity_name", "entity_type", "group_id", "group_instance_id", "key", "member_id", "name",
    "partition_index", "producer_id", "resource_name", "resource_type", "topic_id", "transactional_id",
}  # fmt: skip
_LENGTH_BYTES = 4
SESSION_ERRORS = (
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
    ErrorCode.fetch_session_topic_id_error,
)
_NO_SESSION_EPOCHS = (0, -1)


def error_reply(api_key: int, version: int, correlation_id: int, request: Any, error: ErrorCode) -> bytes:
    """The whole frame."""
    if api_key == ApiKey.API_VERSIONS and error is ErrorCode.unsupported_version:
        return _unsupported_version(correlation_id)
    fields = _mirror(request, message_class(APIS[api_key].name, version, "response"), error)
    if api_key == ApiKey.FETCH:
        fields |= _fetch_level(request, error)
    return encode_reply(api_key, version, correlation_id, fields)


def metadata_with_error(
    frame: bytes, version: int, error: ErrorCode, is_affected: Callable[[str], bool]
) -> bytes:
    """A reply of the broker, with the error for affected topics: clients still learn the nodes."""
    correlation_id, reply = decode_reply(ApiKey.METADATA, version, memoryview(frame)[_LENGTH_BYTES:])
    fields = plain_fields(reply)
    for topic in fields["topics"]:
        if is_affected(topic["name"] or ""):
            topic |= {"error_code": error, "partitions": []}
    return encode_reply(ApiKey.METADATA, version, correlation_id, fields)


def names_no_partitions(request: Any) -> bool:
    """Whether it is a Fetch in a session, which leaves out what the broker remembers."""
    return not request.topics and getattr(request, "session_epoch", 0) not in _NO_SESSION_EPOCHS


def _unsupported_version(correlation_id: int) -> bytes:
    """KIP-511: in version 0, with the versions of ApiVersions itself, so that the client asks again."""
    accepted = APIS[ApiKey.API_VERSIONS].accepted
    own = {"api_key": ApiKey.API_VERSIONS, "min_version": accepted[0], "max_version": accepted[-1]}
    fields = {"error_code": ErrorCode.unsupported_version, "api_keys": [own]}
    return encode_reply(ApiKey.API_VERSIONS, 0, correlation_id, fields)


def _fetch_level(request: Any, error: ErrorCode) -> dict[str, Any]:
    """An error of the session is the reply's; every other one is a partition's."""
    if error in SESSION_ERRORS or not request.topics:
        return {"error_code": error, "responses": []}
    return {"error_code": ErrorCode.none}


def _mirror(request: Any, reply: type, error: ErrorCode) -> dict[str, Any]:
    specs = fields_of(reply)
    carries = any(spec.kind == "error_code" for spec in specs)
    fields: dict[str, Any] = {}
    for spec in specs:
        if spec.kind == "error_code":
            fields[spec.name] = error
        elif spec.struct is not None and spec.is_array:
            sources = _sources(request, spec.struct, carries=carries)
            fields[spec.name] = [_mirror(each, spec.struct, error) for each in sources]
        elif (found := _identity(request, spec)) is not None:
            fields[spec.name] = found
    return fields


def _sources(request: Any, item: type, *, carries: bool) -> Sequence[Any]:
    """What the request has for the items of a list in its reply. `carries`: it has the error already."""
    names = _names(item)
    wanted = names & _IDENTITY
    if not _has_error(item) and wanted != names:
        return ()  # what was asked for, which an error does not give
    lists = [spec for spec in field_specs(request) if spec.is_array and not spec.name.startswith("forgotten")]
    structs = [spec for spec in lists if spec.struct is not None]
    if not wanted:
        alike = [] if carries else structs  # item by item, as in CreateAcls
    else:
        alike = [spec for spec in structs if spec.struct is not None and wanted & _names(spec.struct)]
        alike = alike or [spec for spec in lists if spec.struct is None][:1]  # of plain names or numbers
    found = [each for spec in alike for each in getattr(request, spec.name) or ()]
    return found if found or carries or wanted else (request,)


def _identity(request: Any, spec: FieldSpec) -> Any:
    canonical = _canonical(spec.name)
    if canonical not in _IDENTITY:
        return None
    specs = field_specs(request)
    if not specs:  # a plain name or number
        return request if isinstance(request, str) == (spec.kind == "string") else None
    return next((getattr(request, each.name) for each in specs if _canonical(each.name) == canonical), None)


def _names(struct: type) -> set[str]:
    return {_canonical(spec.name) for spec in fields_of(struct)}


def _has_error(item: type) -> bool:
    return any(
        spec.kind == "error_code" or (spec.struct is not None and _has_error(spec.struct))
        for spec in fields_of(item)
    )


def _canonical(name: str) -> str:
    return _SAME.get(name, name)
