# SPDX-License-Identifier: Apache-2.0
"""Finds the topic to write to, and creates a missing one as the caller wishes.

One event loop, through a NetworkClient. The command line creates topics through tools/admin.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient, NoSuchTopic, TopicView
from headrace.client.retry import Backoff, retry
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

Create = bool | int | None
"""None: if the broker creates topics by itself; True, or a number of partitions: create it; False: never."""

BROKER_DEFAULT = -1
_TIMEOUT_MS = 15_000
_BROKER_CREATES_MS = 3_000
"""A broker says that the topic is unknown both while it creates it and when it does not."""


def check_create(create: object) -> None:
    is_count = isinstance(create, int) and not isinstance(create, bool)
    if not (create is None or isinstance(create, bool) or (is_count and create >= 1)):  # type: ignore[operator]
        raise ClientError(
            f"create={create!r} is neither None, True, False nor a number of partitions",
            next_step="leave it out to create a missing topic if the broker allows it",
        )


async def find_or_create(client: NetworkClient, name: str, create: Create) -> TopicView:
    """NoSuchTopic when it is missing and is not to be created, or not by this broker."""
    if create is False:
        return await client.find(name)
    if create is None:
        return await _found_or_created_by_broker(client, name)
    try:
        return await client.topic(name)
    except NoSuchTopic:
        partitions = BROKER_DEFAULT if create is True else create
        await retry(lambda: create_topic(client, name, partitions=partitions), Backoff(_TIMEOUT_MS).wait)
    return await client.find(name)


async def create_topic(
    client: NetworkClient,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Asks the controller. One that exists already is no error; BrokerError has the broker's reason."""
    entry = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    controller = await client.controller()
    reply = await controller.call(ApiKey.CREATE_TOPICS, {"topics": [entry], "timeout": _TIMEOUT_MS})
    (created,) = reply.topics
    code = ErrorCode(int(created.error_code))
    if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
        reason = getattr(created, "error_message", None) or code.name
        raise BrokerError(f"topic {name!r} cannot be created: {reason}", code)


async def _found_or_created_by_broker(client: NetworkClient, name: str) -> TopicView:
    try:
        return await retry(
            lambda: client.topic(name, create=True),
            Backoff(_BROKER_CREATES_MS).wait,
            retriable=lambda error: isinstance(error, NoSuchTopic),
        )
    except NoSuchTopic as error:
        raise NoSuchTopic(
            f"topic {name!r} does not exist, and the broker does not create topics by itself",
            next_step=f"create it with create=True, or with headrace topics create {name}",
            code=error.code,
        ) from None
