# SPDX-License-Identifier: Apache-2.0
"""What the documents of administration share: their head, alarms, commands, and refused answers.

Read next: acls.py (the smallest view that uses it), docs/design/console.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable
from typing import Literal, TypeVar

from headrace.client.errors import ClientError, as_flags
from headrace.console.state.model import Snapshot
from headrace.console.views.view import Document, Params, ViewError

T = TypeVar("T")
Level = Literal["error", "warning", "info"]

_LEVELS = ("error", "warning", "info")
_OFF = {"SECURITY_DISABLED", "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"}


def document(
    view: str,
    snapshot: Snapshot,
    parts: Document,
    *,
    unknown: tuple[str, ...] = (),
    alarms: list[Document] | None = None,
    commands: list[Document] | None = None,
) -> Document:
    """What every view has, then its own parts."""
    return {
        "view": view,
        "at": snapshot.at_ms,
        "live": snapshot.live,
        "engine": snapshot.engine,
        "unknown": list(unknown),
        "problem": snapshot.problem,
        "alarms": sorted(alarms or [], key=lambda alarm: _LEVELS.index(alarm["level"])),
        "commands": commands or [],
        **parts,
    }


def alarm(
    level: Level,
    text: str,
    next_step: str,
    *,
    command: str | None = None,
    since: int | None = None,
    path: str | None = None,
) -> Document:
    return {
        "level": level,
        "text": text,
        "next": next_step,
        "command": command,
        "since": since,
        "path": path,
    }


def command(label: str, *words: str) -> Document:
    return {"label": label, "command": shlex.join(("headrace", *words))}


async def asked(answer: Awaitable[T]) -> tuple[T | None, Document]:
    """The answer and its state, which also says why there is none and what to do."""
    try:
        return await answer, {"state": "ok", "text": None, "next": None}
    except ClientError as error:
        return None, refusal(error)


def refusal(error: ClientError) -> Document:
    """state: off (the cluster does not do this), refused (not permitted) or failed."""
    code = error.code or ""
    state = "off" if code in _OFF else "refused" if code.endswith("AUTHORIZATION_FAILED") else "failed"
    return {"state": state, "text": error.what, "next": as_flags(error.next_step)}


def bounded_int(params: Params, name: str, default: int, most: int) -> int:
    text = params.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ViewError(f"{name} is {text!r}, which is no whole number", next_step=None, status=400)
    return min(int(text), most)


def matching(wanted: str, *texts: str | None) -> bool:
    """Whether one of the texts contains what is searched for, upper and lower case being the same."""
    return not wanted or any(wanted.casefold() in (text or "").casefold() for text in texts)
