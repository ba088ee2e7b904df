# SPDX-License-Identifier: Apache-2.0
"""The bearer token of /metrics: from the settings or a file, compared in constant time (S7).

Knows no HTTP beyond the Authorization header.
Read next: reporting/http_endpoint.py, config/metrics_settings.py.
"""

from __future__ import annotations

import logging
from pathlib import Path

from headrace.config import NodeConfig
from headrace.config.metrics_settings import TOKEN_FILE, token_problem
from headrace.errors import ConfigError
from headrace.secret import Secret
from headrace.world import Files, Thread, read_file

logger = logging.getLogger(__name__)

_HEADER = b"authorization"
_SCHEME = b"bearer"


class MetricsToken:
    def __init__(self, files: Files, config: NodeConfig) -> None:
        """Raises ConfigError when the file of the token cannot be used."""
        self._files = files
        self._path: str | None = config["headrace.metrics.token.file"] or None
        self._problem: str | None = None
        self._token: Secret | None = config["headrace.metrics.token"]
        if self._path is not None:
            self._token = self._read(self._path)

    def accepts(self, head: bytes) -> bool:
        """Whether the head of a request shows the token, if there is one."""
        if self._token is None:
            return True
        given = _shown_token(head)
        return given is not None and given == self._token

    async def reload(self, thread: Thread) -> None:
        """Reads the file again; what cannot be used is logged once, and the present token stays."""
        if self._path is None:
            return
        try:
            token = await thread.run(self._read, self._path)
        except ConfigError as error:
            if str(error) != self._problem:
                logger.error("%s. The token read before stays in use", error)
            self._problem = str(error)
            return
        self._problem = None
        if token != self._token:
            self._token = token
            logger.info("the token of /metrics was read again")

    def _read(self, path: str) -> Secret:
        try:
            text = read_file(self._files, Path(path)).decode("ascii", errors="replace").strip()
        except OSError as error:
            raise ConfigError(f"{TOKEN_FILE}={path} cannot be read: {error.strerror or error}") from None
        problem = token_problem(text)
        if problem is not None:
            raise ConfigError(f"{TOKEN_FILE}={path} has no usable token: {problem}")
        return Secret(text)


def _shown_token(head: bytes) -> Secret | None:
    """None also when there are several: which one counts must not be a guess."""
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    values = [value.split() for name, _, value in fields if name.lower() == _HEADER]
    if len(values) != 1 or len(values[0]) != 2 or values[0][0].lower() != _SCHEME:
        return None
    return Secret(values[0][1].decode("ascii", errors="replace"))
