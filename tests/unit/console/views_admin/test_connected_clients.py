# SPDX-License-Identifier: Apache-2.0
"""The list of clients that a node tells, in pieces, and what is left of it in another form."""

from __future__ import annotations

import json

from headrace.console.views.admin.connected_clients import ConnectedClient, read_clients

CLIENT = {
    "principal": "User:ana",
    "client_id": "app",
    "software_name": "librdkafka",
    "software_version": "2.5.0",
    "host": "10.0.0.1",
    "port": 5000,
    "listener": "MAIN",
    "since": 7,
    "requests": {"fetch": 3},
    "last_error": {"api": "produce", "error": "topic_authorization_failed", "at": 9},
}


def test_pieces_are_one_list() -> None:
    pieces = [json.dumps({"clients": [CLIENT], "more": 4}), json.dumps({"clients": [CLIENT] * 2, "more": 4})]
    clients, more = read_clients(pieces)
    assert (len(clients), more) == (3, 4)
    assert (clients[0].software, clients[0].port, clients[0].requests) == ("librdkafka", 5000, {"fetch": 3})
    assert clients[0].last_error == {"api": "produce", "error": "topic_authorization_failed", "at": 9}


def test_another_form_is_left_out() -> None:
    strange = ["", None, "no JSON", "[]", '{"clients": 5}', '{"clients": [1, {"requests": 5, "since": "x"}]}']
    assert read_clients(strange) == ([ConnectedClient()], 0)
