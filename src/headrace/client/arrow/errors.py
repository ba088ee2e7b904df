# SPDX-License-Identifier: Apache-2.0
"""Errors of single rows, shared by serializers and partitioning."""

from __future__ import annotations

from headrace.client.errors import ClientError


class RowRefused(ClientError):
    """A row cannot be written; `row` counts within the slice."""

    def __init__(self, row: int, why: ClientError) -> None:
        super().__init__(why.what, next_step=why.next_step, code=why.code)
        self.row = row
