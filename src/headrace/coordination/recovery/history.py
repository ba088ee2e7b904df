# SPDX-License-Identifier: Apache-2.0
"""The history of a coordination store: how a node notices that it was put back to an older copy (R5b).

Every node that starts begins a new store epoch, with a random id, before it writes anything else. The epochs
and the number of commits at which each began are an entry of the store. A node remembers in its data folder
the last epoch that it has seen, and how many commits there were. A store continues what a node remembers
when it has that epoch, and the epoch reached that far; this is how leader epochs tell where two logs diverge
(KIP-101). A store that an operator has declared newer (restore/declare.py) has a declaration that the node
has not seen, and is taken.

Pure. Read next: restore/remembered.py (the file of a node), docs/decisions/0040.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from headrace.coordination import documents
from headrace.errors import CoordinationError

KEY = "/store_history"
MOST_EPOCHS = 200
MOST_DECLARATIONS = 50


class StoreEpoch(NamedTuple):
    number: int
    id: str
    start: int
    """The number of commits with the one that began it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHistory:
    epochs: tuple[StoreEpoch, ...] = ()
    declarations: tuple[str, ...] = ()
    """Ids of the declarations that this store is the one to go on with, the oldest first."""

    def with_epoch(self, epoch_id: str, commits: int) -> StoreHistory:
        """`commits`: of the store as it is; the entry must be written by its very next commit."""
        number = self.epochs[-1].number + 1 if self.epochs else 1
        epochs = (*self.epochs, StoreEpoch(number, epoch_id, commits + 1))
        return StoreHistory(epochs=epochs[-MOST_EPOCHS:], declarations=self.declarations)

    def with_declaration(self, declaration_id: str) -> StoreHistory:
        declarations = (*self.declarations, declaration_id)[-MOST_DECLARATIONS:]
        return StoreHistory(epochs=self.epochs, declarations=declarations)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePosition:
    """What a node remembers of the store."""

    epoch: int
    epoch_id: str
    commits: int
    declarations: tuple[str, ...] = field(default=())


def position_in(history: StoreHistory, commits: int) -> StorePosition | None:
    """None: no node that keeps a history has started on this store yet."""
    if not history.epochs:
        return None
    last = history.epochs[-1]
    return StorePosition(
        epoch=last.number, epoch_id=last.id, commits=commits, declarations=history.declarations
    )


def is_declared_newer(history: StoreHistory, seen: StorePosition | None) -> bool:
    """Whether an operator declared the store newer than what the node has seen."""
    return seen is not None and not set(history.declarations) <= set(seen.declarations)


def why_behind(history: StoreHistory, commits: int, seen: StorePosition | None) -> str | None:
    """How the store contradicts what a node has seen of it; None when it continues that.

    A node that was away for more epochs than the history has cannot tell, and takes the store.
    """
    if seen is None or is_declared_newer(history, seen):
        return None
    this_node = f"this node has seen {seen.commits} commits of it, the last in its epoch {seen.epoch}"
    if not history.epochs:
        return f"it has {commits} commits and no history, and {this_node}"
    if seen.epoch < history.epochs[0].number:
        return None
    ends = [epoch.start - 1 for epoch in history.epochs[1:]] + [commits]
    for epoch, end in zip(history.epochs, ends, strict=True):
        if epoch.number == seen.epoch:
            if epoch.id != seen.epoch_id:
                return f"its epoch {epoch.number} is another one than this node has seen"
            return (
                f"its epoch {epoch.number} ends at commit {end}, and {this_node}"
                if end < seen.commits
                else None
            )
    return f"it has {commits} commits in {history.epochs[-1].number} epochs, and {this_node}"


def encode(history: StoreHistory) -> bytes:
    return documents.encode(
        epochs=[list(epoch) for epoch in history.epochs], declarations=list(history.declarations)
    )


def decode(key: str, value: bytes) -> StoreHistory:
    document = documents.decode(key, value)
    return StoreHistory(
        epochs=tuple(
            StoreEpoch(int(number), str(id_), int(start)) for number, id_, start in document["epochs"]
        ),
        declarations=tuple(str(each) for each in document["declarations"]),
    )


def encode_position(position: StorePosition) -> bytes:
    """With a checksum: a changed digit must not make the store look like another one."""
    fields: dict[str, Any] = {
        "epoch": position.epoch,
        "epoch_id": position.epoch_id,
        "commits": position.commits,
        "declarations": list(position.declarations),
    }
    return documents.encode(**fields, checksum=_checksum(fields))


def _checksum(fields: dict[str, Any]) -> int:
    return crc32(documents.encode(**fields))


def decode_position(name: str, value: bytes) -> StorePosition:
    """Raises CoordinationError when it cannot be read."""
    document: dict[str, Any] = documents.decode(name, value)
    try:
        position = StorePosition(
            epoch=int(document["epoch"]),
            epoch_id=str(document["epoch_id"]),
            commits=int(document["commits"]),
            declarations=tuple(str(each) for each in document["declarations"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CoordinationError(f"{name} cannot be read: {error!r}") from error
    # The first nodes that kept such a file wrote no checksum.
    checksum = document.pop("checksum", None)
    del document["format"]
    if checksum not in (None, _checksum(document)):
        raise CoordinationError(f"{name} does not match its checksum")
    return position
