# SPDX-License-Identifier: Apache-2.0
"""Where a node listens, what it tells its clients, and what it refuses to do by accident."""

from __future__ import annotations

import contextlib
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import ListenerConfig, listener_overrides, load_config, parse_listener
from headrace.errors import ConfigError
from headrace.types import Endpoint


def _load(**settings):
    return load_config(None, {name.replace("_", "."): text for name, text in settings.items()}, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("outside=0.0.0.0:9092,advertise=localhost:9092", ("OUTSIDE", "0.0.0.0", 9092, "localhost", 9092)),
        ("inside=127.0.0.1:29092", ("INSIDE", "127.0.0.1", 29092, "127.0.0.1", 29092)),
        ("v6=[::]:9092,advertise=[2001:db8::1]:19092", ("V6", "::", 9092, "2001:db8::1", 19092)),
        ("test=localhost:0", ("TEST", "localhost", 0, "localhost", 0)),
        ("PLAINTEXT://kafka:29092", ("PLAINTEXT", "kafka", 29092, "kafka", 29092)),
        ("plaintext://[::1]:9092", ("PLAINTEXT", "::1", 9092, "::1", 9092)),
    ],
)
@pytest.mark.row("D20")
def test_both_spellings_of_a_listener(text, expected):
    found = parse_listener(text)
    assert (found.name, found.host, found.port, found.advertised_host, found.advertised_port) == expected
    assert found.security_protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9092", "is not host:port"),
        ("outside=localhost", "is not host:port"),
        ("outside=localhost:99999", "port 99999 is larger than 65535"),
        ("outside=::1:9092", r"an IPv6 host is written \[::1\]:9092"),
        ("outside=[nonsense]:9092", "is not an IPv6 address"),
        ("outside=ho st:9092", "is not a host name or address"),
        ("out side=localhost:9092", "is not a listener name"),
        ("=localhost:9092", "is not a listener name"),
        ("outside=0.0.0.0:9092", "advertise one that they can reach"),
        ("outside=localhost:9092,announce=x:1", "'announce=x:1' is not understood"),
        ("outside=localhost:9092,advertise=a:1,advertise=b:1", "one advertise=host:port and one"),
    ],
)
def test_an_invalid_listener_is_refused_with_the_expected_form(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_listener(text)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_listener_or_a_config_error(text):
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_listener(text), ListenerConfig)


@pytest.mark.row("D20")
def test_an_outer_and_an_inner_listener_each_advertise_their_own_address():
    flags = ["outside=0.0.0.0:9092,advertise=localhost:9092", "inside=0.0.0.0:29092,advertise=kafka:29092"]
    config = load_config(None, {**listener_overrides(flags), "listeners.allow.anonymous": "true"}, None)
    assert [listener.endpoint(listener.port) for listener in config.listeners] == [
        Endpoint(listener="OUTSIDE", host="localhost", port=9092),
        Endpoint(listener="INSIDE", host="kafka", port=29092),
    ]


def test_a_free_port_is_advertised_once_it_is_known():
    (listener,) = _load(listeners="PLAINTEXT://127.0.0.1:0").listeners
    assert listener.endpoint(41234) == Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=41234)


def test_an_empty_host_is_every_interface_under_the_machines_name():
    (listener,) = _load(listeners="PLAINTEXT://:9092", listeners_allow_anonymous="true").listeners
    assert (listener.host, listener.advertised_host) == ("", socket.gethostname())


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "kafka", "", "[::]", "[2001:db8::1]"])
def test_an_address_that_others_may_reach_needs_consent(host):
    settings = {"listeners": f"PLAINTEXT://{host}:9092", "advertised.listeners": "PLAINTEXT://kafka:9092"}
    with pytest.raises(ConfigError, match="--allow-anonymous") as caught:
        load_config(None, settings, None)
    assert "127.0.0.1" in str(caught.value)
    load_config(None, {**settings, "listeners.allow.anonymous": "true"}, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_a_loopback_address_needs_none(host):
    assert _load(listeners=f"PLAINTEXT://{host}:9092").listeners[0].loopback


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_listener_has_the_protocol_of_the_map_or_of_its_flag(protocol):
    tls = {"ssl.keystore.location": "node.pem"}
    named = {"listeners": "CLIENTS://127.0.0.1:9092", "listener.security.protocol.map": f"CLIENTS:{protocol}"}
    flags = listener_overrides([f"clients=127.0.0.1:9092,protocol={protocol.lower()}"])
    after_it = listener_overrides([f"{protocol}://127.0.0.1:9092"])
    for settings in (named, flags, after_it):
        (listener,) = load_config(None, {**settings, **tls}, None).listeners
        assert listener.security_protocol == protocol
        assert (listener.tls, listener.needs_login) == (protocol.endswith("SSL"), protocol.startswith("SASL"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "INSIDE://127.0.0.1:9092"}, "add INSIDE:PLAINTEXT to listener.security.protocol.map"),
        ({"listeners": ""}, "name at least one"),
        ({"listeners": "127.0.0.1:9092"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"}, "PLAINTEXT is named twice"),
        (
            {
                "listeners": "A://127.0.0.1:1,B://127.0.0.1:1",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            },
            "A and B both ask for port 1",
        ),
        ({"advertised.listeners": "OTHER://h:1"}, "OTHER is not one of the listeners PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "which is no address"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:TELNET"}, "is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:SSL,A:SSL"}, "A is named twice"),
        ({"headrace.metrics.host": "0.0.0.0"}, "headrace.metrics.host=0.0.0.0"),
    ],
)
def test_listeners_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(None, settings, None)
    assert str(caught.value).startswith("command line: ")


def test_ipv4_and_ipv6_may_share_a_port():
    config = load_config(
        None,
        {
            "listeners": "FOUR://127.0.0.1:9092,SIX://[::1]:9092",
            "listener.security.protocol.map": "FOUR:PLAINTEXT,SIX:PLAINTEXT",
        },
        None,
    )
    assert [listener.host for listener in config.listeners] == ["127.0.0.1", "::1"]
