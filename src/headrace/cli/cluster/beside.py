# SPDX-License-Identifier: Apache-2.0
"""`headrace up --console`: the web console in a thread beside the nodes; it ends with the command.

On a secure cluster visitors log in, and the admin's login is used for nothing. Read next: cli/console.py.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterPlan
from headrace.cluster.security import plan_security

LOG_NAME = "console.log"


@contextlib.contextmanager
def console_beside(plan: ClusterPlan, folder: ClusterFolder, port: int) -> Iterator[str]:
    """Its address for browsers. ClientError when the port is taken."""
    from headrace.client.cluster import Cluster
    from headrace.console.web.running import BackgroundConsole
    from headrace.console.web.settings import WebSettings

    cluster = Cluster(bootstrap=plan.bootstrap, security=plan_security(plan))
    settings = WebSettings(cluster=cluster, port=port, login=plan.security is not None)
    with _log_file(folder), BackgroundConsole(settings) as url:
        yield url


@contextlib.contextmanager
def _log_file(folder: ClusterFolder) -> Iterator[None]:
    """The terminal has the view of the nodes."""
    handler = logging.FileHandler(folder.path / LOG_NAME, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger(name) for name in ("headrace.console", "uvicorn", "asyncio")]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    loggers[0].setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        handler.close()
