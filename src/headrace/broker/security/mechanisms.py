# SPDX-License-Identifier: Apache-2.0
"""The SASL mechanisms by which users may log in on each listener.

Puts the mechanisms together; what each does is in scram.py, plain.py and oauth.py. Read next: login.py.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from headrace.broker.security.mechanism import Conversation, Mechanisms
from headrace.broker.security.plain import PlainConversation
from headrace.broker.security.scram import ScramConversation
from headrace.broker.security.users import Users
from headrace.config import NodeConfig
from headrace.config.security.sasl_settings import OAUTHBEARER, PLAIN
from headrace.errors import ConfigError
from headrace.principal import user
from headrace.scram_credential import HASH_NAMES
from headrace.world import World

if TYPE_CHECKING:
    from headrace.broker.security.oauth import TokenLogins

_NONCE_BYTES = 24


def user_mechanisms(
    config: NodeConfig, users: Users, random: Random, tokens: TokenLogins | None
) -> dict[str, Mechanisms]:
    """By listener; a listener without logins is left out."""
    begin: dict[str, Callable[[], Conversation]] = {
        name: partial(_begin_scram, name, users, random) for name in HASH_NAMES
    }
    begin[PLAIN] = lambda: PlainConversation(users.credential)
    if tokens is not None:
        begin[OAUTHBEARER] = tokens.begin
    return {
        listener.name: {name: begin[name] for name in _enabled(config, listener.name)}
        for listener in config.listeners
        if listener.needs_login
    }


def session_limits(config: NodeConfig) -> dict[str, int]:
    """How long a login is valid, in milliseconds by listener; 0: no limit."""
    name = "connections.max.reauth.ms"
    return {listener.name: config.of_listener(listener.name, name) for listener in config.listeners}


def make_token_logins(world: World, config: NodeConfig) -> TokenLogins | None:
    """None where no listener has OAUTHBEARER: its packages need not be installed then."""
    needing = [listener.name for listener in config.listeners if listener.needs_login]
    if not any(OAUTHBEARER in _enabled(config, name) for name in needing):
        return None
    try:
        from headrace.broker.security.oauth import TokenLogins
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("joserfc", "cryptography"):
            raise
        raise ConfigError(
            "sasl.enabled.mechanisms: OAUTHBEARER needs the package joserfc, which is not installed: "
            "pip install 'headrace[oauth]'"
        ) from error
    return TokenLogins(world, config)


def _enabled(config: NodeConfig, listener: str) -> tuple[str, ...]:
    mechanisms: tuple[str, ...] = config.of_listener(listener, "sasl.enabled.mechanisms")
    return mechanisms


def _begin_scram(mechanism: str, users: Users, random: Random) -> ScramConversation:
    return ScramConversation(
        HASH_NAMES[mechanism],
        nonce=base64.urlsafe_b64encode(random.randbytes(_NONCE_BYTES)).decode(),
        credential=partial(users.credential, mechanism),
        principal=user,
    )
