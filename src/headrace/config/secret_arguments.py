# SPDX-License-Identifier: Apache-2.0
"""Refuses secrets among the arguments of a command, which every user of the machine can see (S18).

Read next: setting.py (the kind `password`), docs/security.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.config.node_settings import NODE_SETTINGS, split_listener_key
from headrace.errors import ArgumentError


def refuse_secrets(keys: Iterable[str], option: str, advice: str | None = None) -> None:
    """Raises ArgumentError for the first key of a secret; `advice` says where else to set it."""
    for key in keys:
        if _is_secret(key):
            where = advice or (
                f"put it into a file (--config FILE), or set the variable {variable_of(key)} "
                "and use --from-env"
            )
            raise ArgumentError(
                f"{option} {key}: it is a secret, and every user of this machine can see the arguments of a "
                f"command; {where}"
            )


def variable_of(key: str) -> str:
    """The environment variable that sets a setting (environment.py)."""
    name = key.removeprefix("headrace.").replace("_", "__").replace("-", "___").replace(".", "_")
    return f"HEADRACE_{name.upper()}"


def _is_secret(key: str) -> bool:
    of_listener = split_listener_key(key)
    setting = of_listener[1] if of_listener else NODE_SETTINGS.get(key)
    return setting is not None and setting.kind == "password"
