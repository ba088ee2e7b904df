# SPDX-License-Identifier: Apache-2.0
"""A widget that follows one view and draws each of its documents. Read next: table_view.py, detail.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, NoReturn, Protocol

from rich.text import Text
from textual.containers import Vertical
from textual.widgets import Static

from headrace.console.top.values import printable
from headrace.console.views.view import Document, ViewError
from headrace.errors import HeadraceError

_RETRY_S = 2.0
_ALARMS_SHOWN = 3
_LEVELS = {"error": "bold red", "warning": "yellow", "info": "cyan"}


class Documents(Protocol):
    """What the terminal needs of an Observer."""

    def subscribe(self, name: str, params: Mapping[str, str]) -> AsyncIterator[Document]: ...


class LiveView(Vertical):
    """Follows its view between `start` and `stop`; a subclass draws documents in `show`."""

    def __init__(self, documents: Documents, view: str, params: Mapping[str, str], *, id: str) -> None:
        super().__init__(id=id)
        self._documents = documents
        self._view = view
        self._params: dict[str, str] = dict(params)
        self.document: Document | None = None
        self._status = Static("waiting for the cluster …", classes="status")

    def start(self) -> None:
        """Again with other parameters: the one before ends."""
        self.run_worker(self._follow, group="follow", exclusive=True, exit_on_error=False)

    def stop(self) -> None:
        self.workers.cancel_node(self)

    def show(self, document: Document) -> None:
        raise NotImplementedError

    async def _follow(self) -> NoReturn:
        while True:
            try:
                async for document in self._documents.subscribe(self._view, self._params):
                    self.document = document
                    self._tell(status_text(document))
                    self.show(document)
            except HeadraceError as error:
                self._tell(_error_text(error))
            await asyncio.sleep(_RETRY_S)

    def _tell(self, text: Text) -> None:
        self._status.display = bool(text)
        self._status.update(text)


def status_text(document: Mapping[str, Any]) -> Text:
    """The problem, the worst alarms with what to do, and what this cluster does not tell."""
    text = Text()
    if document.get("problem"):
        text.append(f"{printable(document['problem'])}\n", "bold red")
    alarms = document.get("alarms") or ()
    for alarm in alarms[:_ALARMS_SHOWN]:
        text.append(f"{alarm['level']}: {printable(alarm['text'])}", _LEVELS.get(alarm["level"], ""))
        text.append(f" → {printable(alarm['next'])}\n" if alarm.get("next") else "\n")
    if len(alarms) > _ALARMS_SHOWN:
        text.append(f"{len(alarms) - _ALARMS_SHOWN} more alarms\n", "yellow")
    for sentence in document.get("unknown") or ():
        text.append(f"{printable(sentence)}\n", "dim")
    text.rstrip()
    return text


def _error_text(error: HeadraceError) -> Text:
    next_step = error.next_step if isinstance(error, ViewError) else getattr(error, "next_step", None)
    what = getattr(error, "what", str(error))
    return Text(printable(f"{what}; {next_step}" if next_step else what), "bold red")
