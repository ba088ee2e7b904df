# SPDX-License-Identifier: Apache-2.0
"""The kernels that read and write values, by name. Called by kernel_reader.py and sources.py."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from headrace.kernels.library import LIBRARY, function, load_library

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_READS = (_POINTER, _NUMBER, _POINTER, _NUMBER, _POINTER, _POINTER, _POINTER)
_WRITES = (_POINTER, _POINTER, _NUMBER, _POINTER)


@cache
def value_kernel(name: str, path: Path = LIBRARY) -> Any:
    """`read_json`, `read_avro`, `write_json` or `write_avro`; None when it was not compiled."""
    library = load_library(path)
    if library is None:
        return None
    try:
        return function(library, name, *(_READS if name.startswith("read") else _WRITES))
    except AttributeError:  # a library built before they existed
        return None
