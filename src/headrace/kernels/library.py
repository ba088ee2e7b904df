# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled C kernels, if the build produced them, and names their error codes.

Uses only ctypes, since a broker runs without NumPy and pyarrow. The GIL is released while a kernel
runs. Read next: records.h.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

VERSION = 7
LIBRARY = Path(__file__).with_name("_kernels.so")

BUILD_COMMAND = "python -m headrace.kernels.build"

NO_ROOM = -8
FAULTS = {
    -1: "it ends in the middle",
    -2: "a varint is too long",
    -3: "a size runs past its record",
    -4: "its headers are malformed",
    -5: "its timestamp does not fit 64 bits",
    -6: "more records are announced than bytes are there",
    -7: "bytes are left over",
    NO_ROOM: "it is larger than announced",
    -9: "the column's buffers do not fit its length",
    -10: "a partition does not exist",
    -11: "its offset delta does not follow the one before",
    -12: "it has no key, which a compacted topic needs",
}
"""As in records.h."""


def load_library(path: Path = LIBRARY) -> ctypes.CDLL | None:
    """None if the library is missing, cannot be loaded or has another version."""
    try:
        library = ctypes.CDLL(str(path))
        if function(library, "kernels_version")() != VERSION:
            return None
    except (OSError, AttributeError):
        return None
    return library


def why_missing(path: Path = LIBRARY) -> str | None:
    """Why the compiled kernels are not in use; None when they are."""
    if load_library(path) is not None:
        return None
    if path.exists():
        return "the C kernels do not fit this version or platform"
    return "the C kernels are not compiled"


def function(library: ctypes.CDLL, name: str, *arguments: Any) -> Any:
    found = library[f"headrace_{name}"]
    found.argtypes = arguments
    found.restype = ctypes.c_int64
    return found
