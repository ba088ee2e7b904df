# SPDX-License-Identifier: Apache-2.0
"""Many operations, each with its own result, in as few commits as possible.

Read next: cluster_metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.coordination.store import MAX_COMMIT_BYTES, Create, Delete, Set
from headrace.errors import ApiError

MAX_CHUNK_BYTES = MAX_COMMIT_BYTES - 1000  # room for the check of the controller epoch
_MAX_COMMIT_OPERATIONS = 500


@dataclass(frozen=True, slots=True)
class BulkOperation:
    """One operation of a bulk request and its index among the results."""

    index: int
    operation: Create | Delete | Set
    refusal: ApiError


def chunks(operations: Sequence[BulkOperation]) -> Iterable[list[BulkOperation]]:
    chunk: list[BulkOperation] = []
    size = 0
    for each in operations:
        cost = len(each.operation.key) + len(getattr(each.operation, "value", b""))
        if chunk and (size + cost > MAX_CHUNK_BYTES or len(chunk) == _MAX_COMMIT_OPERATIONS):
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += cost
    if chunk:
        yield chunk
