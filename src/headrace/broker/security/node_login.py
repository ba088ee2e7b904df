# SPDX-License-Identifier: Apache-2.0
"""How nodes prove to each other who they are, on listeners of every protocol (S3).

Each node derives the key of a node id from the secret of the cluster, which only nodes can read in the
coordination store, and logs in by SCRAM with that id. Read next: login.py, replication/peers.py.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from functools import partial
from random import Random

from headrace.broker.security.mechanism import Mechanisms
from headrace.broker.security.scram import ScramConversation
from headrace.client.connection import Connection
from headrace.client.sasl import NodeScram
from headrace.client.security import Security
from headrace.errors import ApiError
from headrace.principal import NODE, Principal
from headrace.scram_credential import ScramCredential, make_credential
from headrace.types import ClusterView
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

NODE_MECHANISM = NodeScram.name
_HASH = NodeScram.hash_name
_SALT_BYTES, _NONCE_BYTES = 16, 18
_ITERATIONS = 1
_NOT_A_NODE = "this request is for nodes of the cluster, and this connection has not logged in as {}"


class NodeLogin:
    """Both sides of a login between nodes. `secret` is asked for at each login."""

    def __init__(self, *, node_id: int, secret: Callable[[], bytes], random: Random) -> None:
        self._node_id = node_id
        self._secret = secret
        self._random = random

    @property
    def mechanisms(self) -> Mechanisms:
        return {NODE_MECHANISM: self._accept}

    async def authenticate(self, connection: Connection) -> None:
        """Logs in as this node. A node of an earlier release knows no logins."""
        if ApiKey.SASL_HANDSHAKE in connection.versions:
            name = str(self._node_id)
            await Security(sasl=NodeScram(name, self._key(name))).authenticate(connection)

    def _accept(self) -> ScramConversation:
        nonce = base64.b64encode(self._random.randbytes(_NONCE_BYTES)).decode()
        principal = partial(Principal, NODE)
        return ScramConversation(_HASH, nonce=nonce, credential=self._credential, principal=principal)

    def _credential(self, name: str) -> tuple[ScramCredential, bool]:
        """Of a node id; any other name gets a credential, too, which no login fits."""
        salt = self._derived("salt", name)[:_SALT_BYTES]
        credential = make_credential(_HASH, self._key(name).encode(), salt, _ITERATIONS)
        return credential, name.isascii() and name.isdecimal()

    def _key(self, name: str) -> str:
        return self._derived("key", name).hex()

    def _derived(self, purpose: str, name: str) -> bytes:
        return hmac.digest(self._secret(), f"node {purpose} {name}".encode(), _HASH)


def is_from_node(view: ClusterView, principal: Principal, node_id: int | None = None) -> bool:
    """Whether a request comes from that node, or from any node when none is named (S3).

    While nodes of an earlier release are in the cluster, those need no login.
    """
    if principal.kind == NODE:
        return node_id is None or principal.name == str(node_id)
    return not view.node_login_required


def check_node(view: ClusterView, principal: Principal, node_id: int | None = None) -> None:
    """Raises ApiError unless `is_from_node`."""
    if not is_from_node(view, principal, node_id):
        claimed = "a node" if node_id is None else f"node {node_id}"
        raise ApiError(ErrorCode.cluster_authorization_failed, _NOT_A_NODE.format(claimed))
