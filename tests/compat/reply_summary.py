# SPDX-License-Identifier: Apache-2.0
"""What of a reply has to be equal to Apache Kafka's when requests are authorized."""

from __future__ import annotations

from typing import Any

_NAMES = frozenset({"name", "group_id", "key", "resource_name", "topic", "transactional_id"})


def summary(value: Any) -> Any:
    """Names, error codes and authorized operations of a reply, in an order that does not matter."""
    if isinstance(value, tuple | list):
        return sorted((found for each in value if (found := summary(each))), key=repr)
    kept = {}
    for name in getattr(type(value), "__dataclass_fields__", ()):
        if name.startswith("__") or name.endswith("_features"):  # those of a release
            continue
        field = getattr(value, name)
        if name in ("error_code", "topic_config_error_code", "partition_error_code"):
            kept[name] = int(field)
        elif name in _NAMES or "authorized_op" in name:
            kept[name] = field
        elif name == "configs":
            kept[name] = bool(field)  # both have settings that the other has not
        elif isinstance(field, tuple) and field:
            kept[name] = summary(field)
    return kept
