# SPDX-License-Identifier: Apache-2.0
"""Which kernels run: the compiled ones where the build could make them, otherwise the row-wise ones.

Read next: compiled.py, row_wise.py; docs/decisions/0008-kernels-in-c-without-python-headers.md.
"""

from __future__ import annotations

from functools import cache

from headrace.client.arrow.kernels.compiled import load
from headrace.client.arrow.kernels.row_wise import RowWise
from headrace.client.arrow.kernels.types import Kernels


@cache
def kernels() -> Kernels:
    return load() or RowWise()
