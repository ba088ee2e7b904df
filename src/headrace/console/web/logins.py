# SPDX-License-Identifier: Apache-2.0
"""Logins of visitors, checked by a broker: the console has no users of its own (S15).

Passwords stay in memory as `Secret` and are never logged. Read next: sessions.py.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient
from headrace.client.sasl import AuthenticationFailed
from headrace.client.security_settings import PasswordLogin, SecuritySettings
from headrace.console.web.answers import Refused
from headrace.secret import Secret
from headrace.wire.api_key import ApiKey

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_LONGEST = 1024
_MOST_AT_ONCE = 8
_ASKED_FOR = "which"
"""No mechanism: brokers answer it with those that they have."""


class Logins:
    """Checks logins against the brokers of one cluster."""

    def __init__(self, cluster: Cluster, *, plain_is_safe: bool) -> None:
        self._cluster = replace(cluster, security=SecuritySettings(tls=cluster.security.tls))
        self._allowed = tuple(each for each in MECHANISMS if each != "PLAIN" or plain_is_safe)
        self._offered: tuple[str, ...] | None = None
        self._at_once = asyncio.Semaphore(_MOST_AT_ONCE)

    def read(self, body: Mapping[str, Any]) -> PasswordLogin:
        user, password = body.get("user"), body.get("password")
        mechanism = body.get("mechanism") or self._allowed[0]
        if not isinstance(user, str) or not isinstance(password, str) or not user or not password:
            raise Refused(400, "a login needs a user and a password", "fill in both")
        if max(len(user), len(password)) > _LONGEST or "\0" in user + password:
            raise Refused(400, "the user or the password is too long, or has a NUL character", "check both")
        if mechanism not in self._allowed:
            raise Refused(400, "this mechanism cannot be used", f"choose {', '.join(self._allowed)}")
        return PasswordLogin(mechanism=mechanism, user=user, password=Secret(password))

    def cluster_for(self, login: PasswordLogin) -> Cluster:
        return replace(self._cluster, security=replace(self._cluster.security, login=login))

    async def check(self, login: PasswordLogin) -> Cluster:
        """The cluster as this user reaches it. Refused when no broker accepts the login."""
        cluster = self.cluster_for(login)
        async with self._at_once:
            client = NetworkClient(cluster.bootstrap, security=cluster.security.security())
            try:
                await client.any_connection()
            except AuthenticationFailed as error:
                raise Refused(
                    401, f"the login failed: {error.what}", error.next_step or "check user and password"
                ) from None
            except ClientError as error:
                raise Refused(
                    502, f"the login could not be checked: {error.what}", "check that the brokers run"
                ) from None
            finally:
                await client.close()
        return cluster

    async def mechanisms(self) -> tuple[str, ...]:
        """Those that the brokers offer and that are safe here; all safe ones while no broker answers."""
        if self._offered is None:
            try:
                self._offered = await self._ask_mechanisms()
            except (ClientError, TimeoutError):
                return self._allowed
        return tuple(each for each in self._allowed if each in self._offered) or self._allowed

    async def _ask_mechanisms(self) -> tuple[str, ...]:
        client = NetworkClient(self._cluster.bootstrap, security=self._cluster.security.security())
        try:
            async with asyncio.timeout(5):
                connection: Connection = await client.any_connection()
                reply = await connection.call(ApiKey.SASL_HANDSHAKE, {"mechanism": _ASKED_FOR})
        finally:
            await client.close()
        return tuple(map(str, reply.mechanisms))


class Attempts:
    """Failed logins: a few at once, then one every so many seconds, for each key (address, or user at it)."""

    def __init__(self, now: Callable[[], float], *, at_once: int, every_s: float, keys: int = 10_000) -> None:
        self._now = now
        self._at_once = at_once
        self._every_s = every_s
        self._most_keys = keys
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Key to (failures that count still, when that was)."""

    def wait_s(self, key: str) -> float:
        """How long the next attempt has to wait; 0: not at all."""
        return max(0.0, (self._counting(key) - self._at_once + 1) * self._every_s)

    def failed(self, key: str) -> None:
        self._failures[key] = (self._counting(key) + 1, self._now())
        self._failures.move_to_end(key)
        if len(self._failures) > self._most_keys:
            self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        self._failures.pop(key, None)

    def _counting(self, key: str) -> float:
        count, then = self._failures.get(key, (0.0, 0.0))
        return max(0.0, count - (self._now() - then) / self._every_s)
