# SPDX-License-Identifier: Apache-2.0
"""View `quotas` (`q`): limits of users, client ids and addresses.

answer: {state: "ok"|"off"|"refused"|"failed", text, next}       why there are none, and what to do
total (that match), quotas: [{user, client_id, ip (a name, "" for the default, null for no such part),
                              entity (the same in words), values: [{name, value, unit}],
                              remove (command)}]                 at most 1,000
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from headrace.client.tools.quotas import describe_quotas
from headrace.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from headrace.console.state.model import Snapshot
from headrace.console.views.admin_document import asked, command, document, matching
from headrace.console.views.view import Document, Params, Source, View

_MOST = 1_000
_REFRESH_S = 15.0
_UNITS = {
    PRODUCER_BYTE_RATE: "bytes/s",
    CONSUMER_BYTE_RATE: "bytes/s",
    REQUEST_PERCENTAGE: "% of a thread",
    CONTROLLER_MUTATION_RATE: "partitions/s",
    CONNECTION_CREATION_RATE: "connections/s",
}


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    found, answer = await asked(source.run(describe_quotas, source.cluster))
    chosen = sorted(
        (entity for entity in found or () if matching(params.get("q", ""), *entity)),
        key=lambda entity: [name or "" for name in entity],
    )
    quotas = [_quota(entity, (found or {})[entity]) for entity in chosen[:_MOST]]
    commands = [
        command("List the quotas", "quotas", "list"),
        command(
            "Limit what a user writes to 1 MiB/s",
            *("quotas", "set", "--user", "ana", "producer_byte_rate=1048576"),
        ),
    ]
    parts = {"answer": answer, "total": len(chosen), "quotas": quotas}
    return document("quotas", snapshot, parts, commands=commands)


def _quota(entity: QuotaEntity, values: Mapping[str, float]) -> Document:
    return {
        "user": entity.user,
        "client_id": entity.client_id,
        "ip": entity.ip,
        "entity": str(entity),
        "values": [
            {"name": name, "value": values[name], "unit": _UNITS.get(name)} for name in sorted(values)
        ],
        "remove": shlex.join(("headrace", "quotas", "remove", *_options(entity))),
    }


def _options(entity: QuotaEntity) -> list[str]:
    found: list[str] = []
    for kind, name in entity.items():
        found += [f"--default-{kind}"] if name is None else [f"--{kind}", name]
    return found


VIEW = View(name="quotas", build=build, refresh_s=_REFRESH_S)
