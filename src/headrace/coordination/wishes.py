"""Many operations, each with its own answer, in as few commits as the stores take. Read next: cluster.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.coordination.store import MAX_COMMIT_BYTES, Create, Delete, Set
from headrace.errors import ApiError

MAX_CHUNK_BYTES = MAX_COMMIT_BYTES - 1000  # room for the check of the controller epoch
_MAX_COMMIT_OPERATIONS = 500


@dataclass(frozen=True, slots=True)
class Wish:
    """One operation of a bulk request and its place among the answers."""

    index: int
    operation: Create | Delete | Set
    refusal: ApiError


def chunks(wishes: Sequence[Wish]) -> Iterable[list[Wish]]:
    chunk: list[Wish] = []
    size = 0
    for wish in wishes:
        cost = len(wish.operation.key) + len(getattr(wish.operation, "value", b""))
        if chunk and (size + cost > MAX_CHUNK_BYTES or len(chunk) == _MAX_COMMIT_OPERATIONS):
            yield chunk
            chunk, size = [], 0
        chunk.append(wish)
        size += cost
    if chunk:
        yield chunk
