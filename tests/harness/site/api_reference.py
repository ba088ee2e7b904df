# SPDX-License-Identifier: Apache-2.0
"""The APIs of the Kafka protocol and their versions, from the table that requests are dispatched by."""

from __future__ import annotations

from headrace.broker.reporting.metrics_export import api_label
from headrace.wire.api_authorization import NEEDED
from headrace.wire.api_table import APIS, Api

_HEAD = """\
# Versions of each API

Written from the table that requests are dispatched by; ApiVersions is answered from it, too.
Notes on single APIs: [the Kafka protocol, as served](../protocol.md).
What a principal needs where ACLs are used: [security](../security.md#acls).

| key | API | versions | flexible from | operation needed |
|---:|---|---|---|---|
"""


def page() -> str:
    return _HEAD + "".join(_row(APIS[key]) for key in sorted(APIS))


def _row(api: Api) -> str:
    versions = (
        str(api.min_version) if api.min_version == api.max_version else f"{api.min_version}–{api.max_version}"
    )
    if api.accepted.start != api.min_version:
        versions += f", accepted from {api.accepted.start}"
    flexible = str(api.flexible_from) if api.flexible_from <= api.max_version else "–"
    return f"| {int(api.key)} | {api_label(api.key)} | {versions} | {flexible} | {_operations(api)} |\n"


def _operations(api: Api) -> str:
    needed = NEEDED[api.key]
    by_resource = {
        "topic": needed.topic,
        "group": needed.group,
        "cluster": needed.cluster,
        "transactional id": needed.transactional_id,
    }
    named = [
        f"{''.join(word.capitalize() for word in operation.name.split('_'))} on the {resource}"
        for resource, operation in by_resource.items()
        if operation is not None
    ]
    return ", ".join(named) or "–"
