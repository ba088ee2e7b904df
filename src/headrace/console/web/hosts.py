# SPDX-License-Identifier: Apache-2.0
"""Which Host and Origin headers are the console's own: against DNS rebinding and other pages (S16).

Read next: guard.py.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from headrace.console.web.settings import LOCALHOST, WebSettings

_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(:\d{1,5})?", re.IGNORECASE)


class OwnAddresses:
    """Any port is allowed, because of tunnels; a name must be known.

    Addresses are allowed, too: a page that rebinds its name to this host still sends its name.
    """

    def __init__(self, scheme: str, names: Iterable[str]) -> None:
        self._scheme = scheme
        self._names = {LOCALHOST, *(name.lower() for name in names)}

    @classmethod
    def of(cls, settings: WebSettings) -> OwnAddresses:
        return cls(settings.scheme, (settings.host, *settings.allowed_hosts))

    def is_host(self, header: str) -> bool:
        match = _HOST.fullmatch(header)
        if match is None:
            return False
        name = match[1].lower()
        return name in self._names or _is_address(name.strip("[]"))

    def is_origin(self, origin: str, host: str) -> bool:
        """Whether a page of `origin` is one of this console, reached as `host`."""
        return origin.lower() == f"{self._scheme}://{host}".lower()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
