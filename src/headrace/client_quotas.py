# SPDX-License-Identifier: Apache-2.0
"""Client quotas: the entities they are set for, their names and values (KIP-13, 124, 546, 599, 612).

Shared by all layers. Read next: machines/quotas/ (decides), broker/quotas/ (enforces), docs/security.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DEFAULT = ""
"""In place of a name: the quota of everyone who has none of their own. No entity has an empty name."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_QUOTAS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""Of users and client ids."""
IP_QUOTAS = (CONNECTION_CREATION_RATE,)
WHOLE_NUMBERS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})


class QuotaEntity(NamedTuple):
    """A user, a client id, both together, or an address; each a name, DEFAULT, or None for no such part."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def items(self) -> list[tuple[str, str | None]]:
        """Entity type and name of each part, as the protocol has them: None is the default."""
        return [
            (kind, name or None) for kind, name in zip(ENTITY_TYPES, self, strict=True) if name is not None
        ]

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or '(default)'}" for kind, name in self.items())


Quotas = Mapping[QuotaEntity, Mapping[str, float]]
"""All quotas of a cluster, by entity."""
