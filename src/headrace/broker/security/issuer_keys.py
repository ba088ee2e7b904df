# SPDX-License-Identifier: Apache-2.0
"""The keys of a token issuer (JWKS): read from where the configuration says, kept while it cannot be read.

Knows no tokens. Imported with oauth.py only: needs the packages of `headrace[oauth]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey, import_key

from headrace.errors import ConfigError
from headrace.world import World

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
TIMEOUT_S = 10.0
UNKNOWN_KEY_PAUSE_S = 10.0
"""Tokens that name an unknown key cause a read at most this often."""
_FEWEST_RSA_BITS = 2048
_MOST_KEYS = 1_000

Key = RSAKey | ECKey


class IssuerKeys:
    def __init__(
        self, world: World, url: str, *, refresh_ms: int, backoff_ms: int, max_backoff_ms: int
    ) -> None:
        self._world = world
        self._url = url
        self._refresh_s = refresh_ms / 1000
        self._backoff_s = backoff_ms / 1000
        self._max_backoff_s = max_backoff_ms / 1000
        self._keys: dict[str | None, Key] = {}
        self._read_at: float | None = None
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the keys and then again and again. A file that cannot be read is a ConfigError."""
        failed = await self._read()
        if failed is not None and self._url.startswith("file:"):
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {failed}")
        self._task = self._world.tasks.spawn(self._refresh(failed is not None), name="keys of the issuer")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def find(self, key_id: str | None) -> Key | None:
        """A token need not name its key where there is only one. An unknown one may be new: read soon."""
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        found = self._keys.get(key_id)
        if found is None and self._may_read():
            self._wanted.set()
        return found

    def _may_read(self) -> bool:
        now = self._world.clock.monotonic()
        return self._read_at is None or now - self._read_at >= UNKNOWN_KEY_PAUSE_S

    async def _refresh(self, failed: bool) -> None:
        failures = 1 if failed else 0
        while True:
            backoff_s = min(self._max_backoff_s, self._backoff_s * 2 ** min(failures - 1, 30))
            await self._wait(backoff_s if failures else self._refresh_s)
            failures = 0 if await self._read() is None else failures + 1

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()

    async def _read(self) -> str | None:
        """What went wrong, also logged; the keys of the last successful read stay."""
        self._read_at = self._world.clock.monotonic()
        self._wanted.clear()
        try:
            self._keys = read_keys(await self._fetch())
        except (OSError, ValueError) as error:
            logger.warning("the keys of the token issuer were not read from %s: %s", self._url, error)
            return f"{self._url} cannot be read: {error}"
        return None

    async def _fetch(self) -> bytes:
        parts = urlsplit(self._url)
        if parts.scheme == "https":
            get = self._world.network.https_get
            return await get(self._url, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES)
        file = self._world.files.open(Path(unquote(parts.path)), "read")
        try:
            if file.size() > MAX_BYTES:
                raise OSError(f"it has more than {MAX_BYTES} bytes")
            return file.pread(file.size(), 0)
        finally:
            file.close()


def read_keys(document: bytes) -> dict[str | None, Key]:
    """The usable public keys of a JWKS by their id. ValueError when it is not one, or has none."""
    parsed: Any = json.loads(document)
    listed = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JSON Web Key Set: no list of keys")
    keys: dict[str | None, Key] = {}
    for each in listed[:_MOST_KEYS]:
        key = _usable_key(each)
        if key is not None:
            keys[each.get("kid")] = key
    if not keys:
        raise ValueError("it has no RSA or EC key for signatures")
    return keys


def _usable_key(fields: Any) -> Key | None:
    """Secret keys (`oct`) are left out: with one, whoever can verify tokens could make them (S9)."""
    if not isinstance(fields, dict) or fields.get("kty") not in ("RSA", "EC"):
        return None
    if fields.get("use", "sig") != "sig" or not isinstance(fields.get("kid"), str | None):
        return None
    try:
        key = import_key(fields)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        logger.warning("a key of the token issuer cannot be used: %r", error)
        return None
    if isinstance(key, RSAKey) and key.public_key.key_size < _FEWEST_RSA_BITS:
        logger.warning("a key of the token issuer has fewer than %d bits", _FEWEST_RSA_BITS)
        return None
    return key if isinstance(key, RSAKey | ECKey) else None
