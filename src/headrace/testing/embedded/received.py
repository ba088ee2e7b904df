# SPDX-License-Identifier: Apache-2.0
"""Requests that a broker has received; decoded only when something asks for more than their header.

Read next: message_fields.py, faults.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headrace.errors import DecodeError
from headrace.testing.embedded.message_fields import TopicName, first_value, plain_fields, topics_of
from headrace.testing.embedded.names import api_name
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import RequestHeader
from headrace.wire.messages import decode_request

_MOST_REQUESTS = 10_000
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that a client sent."""

    api: str
    """As Kafka writes it: OffsetCommit."""
    version: int
    client: str | None
    """Its client id."""
    topics: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The topics it names, with the partitions it names of each."""
    group: str | None = None
    transactional_id: str | None = None
    fields: dict[str, Any] = field(default_factory=dict, repr=False)
    """All of it as plain values, by the names of Kafka's protocol in lower case (`group_id`)."""


class ReceivedRequest:
    """A frame with its header."""

    def __init__(self, api: ApiKey, header: RequestHeader, frame: bytes, name_of: TopicName) -> None:
        self.api = api
        self.client = header.client_id
        self.header = header
        self.frame = frame
        self._name_of = name_of

    @property
    def api_name(self) -> str:
        return api_name(self.api)

    @cached_property
    def message(self) -> Any:
        """kio's object; None when it is malformed, or of a version that is not served."""
        key, version, _, _, position = self.header
        try:
            return decode_request(key, version, memoryview(self.frame), position, len(self.frame))
        except DecodeError:
            return None

    @cached_property
    def topics(self) -> dict[str, tuple[int, ...]]:
        return {} if self.message is None else topics_of(self.message, self._name_of)

    def plain(self) -> Request:
        api, version = self.api_name, self.header.api_version
        if self.message is None:
            return Request(api=api, version=version, client=self.client)
        return Request(
            api=api,
            version=version,
            client=self.client,
            topics=self.topics,
            group=first_value(self.message, "group_id"),
            transactional_id=first_value(self.message, "transactional_id"),
            fields=plain_fields(self.message),
        )


def asks_for_all_topics(request: ReceivedRequest) -> bool:
    """Of Metadata: no list means all topics; in version 0 an empty one does."""
    if request.api is not ApiKey.METADATA or request.message is None:
        return False
    topics = request.message.topics
    return topics is None or (not topics and request.header.api_version == 0)


def asks_for_no_topic(request: ReceivedRequest) -> bool:
    return request.message is not None and not request.topics and not asks_for_all_topics(request)


class RequestLog:
    """The last requests, as many as fit into the memory of a test."""

    def __init__(self) -> None:
        self._requests: deque[ReceivedRequest] = deque()
        self._bytes = 0

    def add(self, request: ReceivedRequest) -> None:
        self._requests.append(request)
        self._bytes += len(request.frame)
        while len(self._requests) > _MOST_REQUESTS or self._bytes > _MOST_BYTES:
            self._bytes -= len(self._requests.popleft().frame)

    def all(self) -> Iterable[ReceivedRequest]:
        return self._requests

    def matching(self, api: ApiKey | None, client: str | None, topic: str | None) -> list[ReceivedRequest]:
        return [
            each
            for each in self._requests
            if api in (None, each.api) and client in (None, each.client) and topic in (None, *each.topics)
        ]
