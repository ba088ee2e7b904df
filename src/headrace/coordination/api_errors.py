# SPDX-License-Identifier: Apache-2.0
"""Errors that clients get when a change of the cluster is refused. Read next: cluster_metadata.py."""

from __future__ import annotations

from headrace.errors import ApiError, CoordinationError, ErrorCode
from headrace.types import Topic


def already_exists(name: str) -> ApiError:
    return ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def unknown_topic(name: str) -> ApiError:
    return ApiError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' does not exist.")


def changed_meanwhile() -> ApiError:
    return ApiError(
        ErrorCode.invalid_update_version, "The entry was changed by another request at the same time: retry."
    )


def topic_changed_meanwhile(name: str) -> ApiError:
    return ApiError(
        ErrorCode.invalid_update_version, f"Topic '{name}' was changed by another request at the same time."
    )


def too_many_partitions(topic: Topic) -> ApiError:
    return ApiError(
        ErrorCode.invalid_partitions,
        f"Topic '{topic.name}' would have {len(topic.partitions)} partitions: more than one entry of the "
        "coordination store can hold.",
    )


def not_controller(message: str) -> ApiError:
    return ApiError(ErrorCode.not_controller, message)


def store_failed(error: CoordinationError) -> ApiError:
    """REQUEST_TIMED_OUT: clients retry it, and the outcome is unknown."""
    return ApiError(ErrorCode.request_timed_out, f"The coordination store failed: {error}")
