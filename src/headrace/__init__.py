"""Headrace: an event-streaming platform that speaks the Kafka protocol."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.version import __version__ as __version__

if TYPE_CHECKING:
    from headrace.client.arrow.read.reader import aread as aread
    from headrace.client.arrow.read.reader import read as read
    from headrace.client.arrow.read.selection import topic as topic
    from headrace.client.arrow.read.typed import Rejects as Rejects
    from headrace.client.arrow.stream.stream import astream as astream
    from headrace.client.arrow.stream.stream import stream as stream
    from headrace.client.arrow.transform.transform import atransform as atransform
    from headrace.client.arrow.transform.transform import transform as transform
    from headrace.client.arrow.values.formats import Avro as Avro
    from headrace.client.arrow.values.formats import Json as Json
    from headrace.client.arrow.write.transaction import atransaction as atransaction
    from headrace.client.arrow.write.transaction import transaction as transaction
    from headrace.client.arrow.write.writer import awrite as awrite
    from headrace.client.arrow.write.writer import write as write
    from headrace.client.security import Security as Security

_LAZY = {
    "Avro": "arrow.values.formats",
    "Json": "arrow.values.formats",
    "Rejects": "arrow.read.typed",
    "Security": "security",
    "aread": "arrow.read.reader",
    "astream": "arrow.stream.stream",
    "atransaction": "arrow.write.transaction",
    "atransform": "arrow.transform.transform",
    "awrite": "arrow.write.writer",
    "read": "arrow.read.reader",
    "stream": "arrow.stream.stream",
    "topic": "arrow.read.selection",
    "transaction": "arrow.write.transaction",
    "transform": "arrow.transform.transform",
    "write": "arrow.write.writer",
}
"""Public names by module of headrace.client, loaded when first used: `import headrace` stays quick."""
_EXTRA = ("numpy", "pyarrow")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    try:
        if _LAZY[name].startswith("arrow."):
            for library in _EXTRA:  # named here, not where its first use happens to be
                importlib.import_module(library)
        found = getattr(importlib.import_module(f"headrace.client.{_LAZY[name]}"), name)
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
