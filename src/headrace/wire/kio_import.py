# SPDX-License-Identifier: Apache-2.0
"""Imports kio without its testing aid.

kio imports hypothesis when that is installed, which costs a broker 0.2 to 2 seconds at start.
"""

import importlib
import sys


def import_kio() -> None:
    """Must be called before the first `import kio…` of a module."""
    if "kio.static.primitive" in sys.modules or "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]
