"""Headrace: an event-streaming platform that speaks the Kafka protocol."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.client.arrow.reader import aread as aread
    from headrace.client.arrow.reader import read as read
    from headrace.client.arrow.selection import topic as topic
    from headrace.client.arrow.stream import astream as astream
    from headrace.client.arrow.stream import stream as stream
    from headrace.client.arrow.transaction import transaction as transaction
    from headrace.client.arrow.typed import Rejects as Rejects
    from headrace.client.arrow.values.formats import Avro as Avro
    from headrace.client.arrow.values.formats import Json as Json
    from headrace.client.arrow.writer import awrite as awrite
    from headrace.client.arrow.writer import write as write
    from headrace.client.security import Security as Security

__version__ = "0.1.0"

_LAZY = {
    "Avro": "values.formats",
    "Json": "values.formats",
    "Rejects": "typed",
    "Security": "security",
    "aread": "reader",
    "astream": "stream",
    "awrite": "writer",
    "read": "reader",
    "stream": "stream",
    "topic": "selection",
    "transaction": "transaction",
    "write": "writer",
}
"""Names of the Arrow client by module: loaded when first used, so that `import headrace` stays quick."""
_WITHOUT_ARROW = ("Security",)
_EXTRA = ("numpy", "pyarrow")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    try:
        package = "client" if name in _WITHOUT_ARROW else "client.arrow"
        found = getattr(importlib.import_module(f"headrace.{package}.{_LAZY[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        return _missing(name, error.name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def _missing(name: str, library: str) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise ImportError(f"headrace.{name} needs {library}: pip install headrace[arrow]")

    return refuse
