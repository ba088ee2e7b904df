# SPDX-License-Identifier: Apache-2.0
"""Kafka's error codes, by the name Kafka's documentation uses in lower case."""

from headrace.wire.kio_import import import_kio

import_kio()

from kio.schema.errors import ErrorCode  # noqa: E402

__all__ = ["ErrorCode"]
