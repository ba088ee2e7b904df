# SPDX-License-Identifier: Apache-2.0
"""Targets: SCRAM on the broker's side, the SASL requests of a connection, and envelopes of other nodes.

Only LoginRefused and DecodeError may come out, and nobody is logged in without the password.
Read next: catalog.py, headrace/broker/security/login.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from headrace.broker.dispatch.envelope import unwrap, wrap
from headrace.broker.dispatch.forwarding import FORWARDED_KEYS
from headrace.broker.network.request_context import RequestContext
from headrace.broker.security.audit import AuditLog
from headrace.broker.security.login import Logins
from headrace.broker.security.mechanism import LoginRefused, Success
from headrace.broker.security.scram import ScramConversation
from headrace.errors import DecodeError
from headrace.principal import ANONYMOUS, Principal, node, user
from headrace.realworld import RealClock
from headrace.scram_credential import ScramCredential, make_credential
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, read_request_header
from headrace.wire.framing import FrameSplitter
from headrace.wire.messages import decode_request, encode_request
from headrace.wire.requests.sasl import encode_sasl_reply, read_sasl_request
from tests.harness.fuzzing.frames import sound_request
from tests.harness.fuzzing.hostile import EVERY_VERSION
from tests.harness.fuzzing.target import Target

_HASH, _MECHANISM, _USER, _PASSWORD = "sha256", "SCRAM-SHA-256", "anna", b"secret"
_SALT, _NONCE, _ITERATIONS = b"s" * 16, "servernonce", 1
_SEPARATOR = b"\n"
_LOGIN = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


@cache
def _credential() -> ScramCredential:
    return make_credential(_HASH, _PASSWORD, _SALT, _ITERATIONS)


def _conversation() -> ScramConversation:
    return ScramConversation(
        _HASH, nonce=_NONCE, credential=lambda name: (_credential(), name == _USER), principal=user
    )


def converse(data: bytes) -> None:
    """The messages of one login, a line each."""
    conversation = _conversation()
    messages = data.split(_SEPARATOR)
    for place, message in enumerate(messages):
        with suppress(LoginRefused):
            answer = conversation.answer(message)
            if isinstance(answer, Success):
                assert place == 1, "a login takes two messages"
                assert answer.principal == user(_USER)
                assert _proof_in(message) == _proof(messages[0], message)


def _proof_in(final: bytes) -> bytes:
    return base64.b64decode(final.rpartition(b",p=")[2])


def _proof(first: bytes, final: bytes) -> bytes:
    """What only the password gives, by RFC 5802."""
    bare = first.split(b",", 2)[2]
    client_nonce = bare.split(b",")[1][2:]
    salt = base64.b64encode(_SALT)
    challenge = b"r=" + client_nonce + _NONCE.encode() + b",s=" + salt + b",i=%d" % _ITERATIONS
    signed = b",".join((bare, challenge, final.rpartition(b",p=")[0]))
    salted = hashlib.pbkdf2_hmac(_HASH, _PASSWORD, _SALT, _ITERATIONS)
    key = hmac.digest(salted, b"Client Key", _HASH)
    signature = hmac.digest(hashlib.new(_HASH, key).digest(), signed, _HASH)
    return bytes(left ^ right for left, right in zip(key, signature, strict=True))


def _messages(name: str = _USER, header: str = "n,,") -> tuple[bytes, bytes]:
    first = f"{header}n={name},r=clientnonce".encode()
    binding = base64.b64encode(header.encode())
    without_proof = b"c=" + binding + b",r=clientnonce" + _NONCE.encode()
    return first, without_proof + b",p=" + base64.b64encode(_proof(first, without_proof + b",p="))


def _conversations() -> Sequence[bytes]:
    variants = [
        ("anna", "n,,"),
        ("anna", "n,a=anna,"),
        ("bob", "n,,"),
        ("an=2Cna", "n,,"),
        ("=3D", "n,a==3D,"),
    ]
    return [_SEPARATOR.join(_messages(*variant)) for variant in variants]


class _Connection:
    """What a login needs of its connection (login.LoginConnection)."""

    def __init__(self) -> None:
        self.principal = ANONYMOUS
        self.has_logged_in = False
        self.may_log_in = True
        self.login: Any = None

    def logged_in(self, principal: Principal, session_ms: int) -> None:
        assert session_ms >= 0
        self.principal, self.login, self.has_logged_in = principal, None, True


class _Inline:
    """Tasks and a thread that never wait."""

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


@cache
def _logins() -> Logins:
    inline: Any = _Inline()
    mechanisms = {_MECHANISM: _conversation}
    return Logins(
        clock=RealClock(),
        tasks=inline,
        thread=inline,
        audit=AuditLog(RealClock()),
        mechanisms=lambda _: mechanisms,
    )


def log_in(data: bytes) -> None:
    """A stream of SASL requests on one connection, answered or refused, each reply encodable."""
    connection = _Connection()
    with suppress(DecodeError):
        for frame in FrameSplitter(max_frame=1 << 20).feed(data):
            view = memoryview(frame)
            header = read_request_header(view, 0, len(view))
            key, version, correlation_id, client_id, _ = header
            if key not in _LOGIN or version not in APIS[key].accepted:
                continue
            request = read_sasl_request(header, view, len(view))
            context = RequestContext(key, version, correlation_id, client_id, "main", "1.2.3.4:5", ANONYMOUS)
            answering = _logins().answer(connection, context, request)
            answer = answering if isinstance(answering, dict) else _ended(answering)
            encode_sasl_reply(key, version, correlation_id, answer)
            assert connection.principal in (ANONYMOUS, user(_USER))


def _ended(answering: Awaitable[Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        next(answering.__await__())
    except StopIteration as end:
        return end.value
    raise AssertionError("a login waits for something")


def _login_streams() -> Sequence[bytes]:
    streams = []
    for handshake, authenticate in ((0, 0), (1, 0), (1, 2)):
        for first, final in (_messages(), _messages("bob")):
            frames = [encode_request(ApiKey.SASL_HANDSHAKE, handshake, 1, "fuzz", {"mechanism": _MECHANISM})]
            for message in (first, final):
                fields = {"auth_bytes": message}
                frames.append(encode_request(ApiKey.SASL_AUTHENTICATE, authenticate, 2, "fuzz", fields))
            streams.append(b"".join(frames))
    return streams


def open_envelope(data: bytes) -> None:
    """The body of an Envelope request of a node."""
    sender = RequestContext(ApiKey.ENVELOPE, 0, 1, None, "nodes", "1.2.3.4:5", node(1))
    view = memoryview(data)
    with suppress(DecodeError):
        request = decode_request(ApiKey.ENVELOPE, 0, view, 0, len(view))
        context, body = unwrap(sender, request, FORWARDED_KEYS)
        assert context.api_key in FORWARDED_KEYS
        assert context.principal.kind == "User"
        decode_request(context.api_key, context.api_version, body, 0, len(body))


def _envelopes() -> Sequence[bytes]:
    envelopes = []
    for key, version in EVERY_VERSION:
        frame = memoryview(sound_request(key, version))[4:]
        header = read_request_header(frame, 0, len(frame))
        context = RequestContext(key, version, 1, "fuzz", "main", "1.2.3.4:5", user(_USER))
        envelope = encode_request(
            ApiKey.ENVELOPE, 0, 1, None, wrap(context, bytes(frame[header.body_position :]))
        )
        outer = memoryview(envelope)[4:]
        envelopes.append(bytes(outer[read_request_header(outer, 0, len(outer)).body_position :]))
    return envelopes


LOGIN_TARGETS = (
    Target(name="scram", run=converse, sound=_conversations),
    Target(name="logins", run=log_in, sound=_login_streams),
    Target(name="envelopes", run=open_envelope, sound=_envelopes),
)
