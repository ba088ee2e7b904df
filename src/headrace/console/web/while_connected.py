# SPDX-License-Identifier: Apache-2.0
"""Ends what makes an answer when the viewer leaves: a server takes what is sent after that without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def while_connected(sending: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Runs it to its end, or cancels it when the viewer leaves; raises what it raises."""
    work = asyncio.ensure_future(sending)
    leaving = asyncio.ensure_future(_until_left(receive))
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (work, leaving):
            task.cancel()
        await asyncio.gather(work, leaving, return_exceptions=True)
    if not work.cancelled():
        work.result()


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
