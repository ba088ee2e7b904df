"""A stream that cannot be: says why when Spark first asks it something.

Raised while a reader is made, the reason would be hidden behind an error of Spark's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from headrace.client.errors import ClientError


class RefusedStream(DataSourceStreamReader):
    def __init__(self, reason: ClientError) -> None:
        self._reason = reason

    def initialOffset(self) -> NoReturn:
        raise self._reason

    def latestOffset(self, start: Any = None, limit: Any = None) -> NoReturn:
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._reason
