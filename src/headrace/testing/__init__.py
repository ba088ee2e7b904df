# SPDX-License-Identifier: Apache-2.0
"""A real broker inside a test: `with headrace.testing.Broker() as broker: ... broker.bootstrap`.

The broker's code is the production code, on a disk in memory and with a clock that a test can move. pytest
finds the fixtures `kafka`, `kafka_bootstrap`, `kafka_cluster`, `kafka_topic` and `kafka_options` by itself;
see docs/test-broker.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.embedded.broker import Broker as Broker
    from headrace.testing.embedded.faults import Fault as Fault
    from headrace.testing.embedded.received import Request as Request
    from headrace.testing.embedded.records import Record as Record

__all__ = ["Broker", "Fault", "Record", "Request"]


def __getattr__(name: str) -> Any:
    """Loaded when first used: a pytest plugin must not import a broker that no test asks for."""
    if name not in __all__:
        raise AttributeError(f"module 'headrace.testing' has no attribute {name!r}")
    from headrace.testing.embedded import broker

    found = globals()[name] = getattr(broker, name)
    return found
