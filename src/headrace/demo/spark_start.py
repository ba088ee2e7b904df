# SPDX-License-Identifier: Apache-2.0
"""Starts Spark in the background while other scenes play, since it takes seconds."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from headrace.client.errors import ClientError
from headrace.pipelines.spark_session.stderr_log import stderr_to

_START_S = 300
_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.log.level": "OFF"}


class SparkStart:
    def __init__(self, folder: Path) -> None:
        self._log = folder / "spark.log"
        self._session: Any = None
        self._failure = f"Spark did not start within {_START_S} s"
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def session(self) -> Any:
        """Wait for the session; ClientError says why there is none."""
        self._thread.join(_START_S)
        if self._session is None:
            raise ClientError(self._failure)
        return self._session

    def stop(self) -> None:
        self._thread.join(_START_S)
        if self._session is not None:
            self._session.stop()

    def _start(self) -> None:
        from headrace.pipelines.spark_session.session import spark_session

        try:
            with stderr_to(self._log):
                self._session = spark_session("local[2]", name="headrace demo", settings=_SETTINGS)
        except ClientError as error:
            self._failure = str(error)
        except RuntimeError as error:
            self._failure = f"Spark did not start: {str(error).strip().splitlines()[0]}"
