# SPDX-License-Identifier: Apache-2.0
"""The process around a node: event loop, signals, limits of the operating system.

The only module of the broker that looks at the process itself (R35). Read next: node.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.logging_setup import set_up_logging
from headrace.broker.node import DEFAULT_DESCRIPTORS, Broker, start_node
from headrace.config import NodeConfig
from headrace.kernels.library import BUILD_COMMAND, why_missing
from headrace.realworld import RealWorld

_INITIAL_DELAY = "group.initial.rebalance.delay.ms"
logger = logging.getLogger(__name__)

_COLLECTION_THRESHOLDS = 5_000, 5, 40
"""Full collections after a million new objects. By default one large request causes a dozen, and each keeps
the event loop for a tenth of a second."""


def run(
    config: NodeConfig, on_ready: Callable[[Broker], None] = lambda broker: None, *, core: int | None = None
) -> int:
    """Serves until a signal. Returns the exit code; raises HeadraceError when the node cannot start.

    `core`: the number that this node has among those of its host, for its log.
    """
    set_up_logging(config["headrace.log.format"], config["headrace.log.level"], core=core)
    for note in config.notes:
        logger.warning("%s", note)
    if (reason := why_missing()) is not None:
        logger.warning(
            "%s; compile them: %s. Without them records inside batches are not validated unless "
            "record.validation=full",
            reason,
            BUILD_COMMAND,
        )
    return _run_on_fastest_loop(_serve(config, on_ready))


async def _serve(config: NodeConfig, on_ready: Callable[[Broker], None]) -> int:
    broker = await start_node(
        RealWorld(),
        config,
        hostname=socket.gethostname(),
        descriptors=_raise_descriptor_limit(),
    )
    if config.alone and _INITIAL_DELAY not in config.explicit:
        logger.info("this node runs alone: new groups do not wait for more members (%s=0)", _INITIAL_DELAY)
    _make_collections_short()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, broker.stop_wanted.set)
    on_ready(broker)
    await broker.stop_wanted.wait()
    try:
        await broker.stop()
    finally:
        if broker.failure is not None:  # also after further errors of a failed disk
            raise broker.failure
    return 0


def _make_collections_short() -> None:
    """Called when the node has started: what exists now is never garbage."""
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    gc.freeze()


def _raise_descriptor_limit() -> int:
    """Raises the soft limit of open files to the hard limit, which needs no privilege."""
    try:
        import resource
    except ImportError:  # Windows
        return DEFAULT_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS caps it below an unlimited hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return min(soft, 1 << 20) if soft > 0 else DEFAULT_DESCRIPTORS


def _run_on_fastest_loop(main: Coroutine[Any, Any, int]) -> int:
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    return uvloop.run(main)
