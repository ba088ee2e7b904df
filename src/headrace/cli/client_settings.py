# SPDX-License-Identifier: Apache-2.0
"""Settings of a client: `-X name=value`, before `--command-config`, before HEADRACE_CLIENT_CONFIG.

Must not know what a setting does: client/client_config.py reads them.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence

import typer

from headrace.client.bootstrap import parse_bootstrap
from headrace.client.client_config import (
    CLIENT_NAMES,
    VARIABLE,
    cluster_of,
    overridden,
    read_client_config,
)
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.security_names import SECURITY_NAMES, is_secret_name, is_security_name

OPTION = "-X"

_OPTIONS = {
    "bootstrap.servers": "--bootstrap",
    "metadata.broker.list": "--bootstrap",
    "group.id": "--group of `headrace consume`",
    "group.protocol": "--protocol of `headrace consume`",
    "auto.offset.reset": "--from of `headrace consume`",
    "acks": "--acks of `headrace produce`",
    "request.required.acks": "--acks of `headrace produce`",
    "compression.type": "--compression of `headrace produce`",
    "compression.codec": "--compression of `headrace produce`",
    "partitioner": "--partitioner of `headrace produce`",
    "delivery.timeout.ms": "--timeout of `headrace produce`",
    "message.timeout.ms": "--timeout of `headrace produce`",
}
"""Settings of Kafka's clients that are options of commands here."""


def connect(bootstrap: str, file: str | None, settings: Sequence[str]) -> Cluster:
    """The cluster at an address. Reads the file: call it once, for it may be a pipe."""
    try:
        parse_bootstrap(bootstrap)
    except ClientError as error:
        raise typer.BadParameter(f"{error.what}; {error.next_step}", param_hint="--bootstrap") from None
    given = parse_settings(settings)
    path = file or os.environ.get(VARIABLE)
    in_file = read_client_config(path) if path else {}
    if not given:
        return cluster_of(bootstrap, in_file, where=f"{path}: " if path else "")
    try:
        return cluster_of(bootstrap, overridden(in_file, given))
    except ClientError as error:
        raise typer.BadParameter(f"{error.what}; {error.next_step}", param_hint=OPTION) from None


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """`name=value` texts; unknown names, repeated ones and passwords are refused."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=OPTION)
        _check_name(name)
        if name in settings:
            raise typer.BadParameter(f"{name!r} is set twice", param_hint=OPTION)
        settings[name] = value.strip()
    return settings


def _check_name(name: str) -> None:
    if is_secret_name(name):
        raise typer.BadParameter(
            f"{name}=…: other users of this machine can see arguments; write it into a file: "
            "--command-config FILE",
            param_hint=OPTION,
        )
    if name in _OPTIONS:
        raise typer.BadParameter(f"{name} is an option of its own: {_OPTIONS[name]}", param_hint=OPTION)
    known = (*SECURITY_NAMES, *CLIENT_NAMES)
    if name.lower() in known or is_security_name(name):  # its reader knows what is wrong with it
        return
    close = difflib.get_close_matches(name.lower(), (*known, *_OPTIONS), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "docs/security.md lists the settings"
    raise typer.BadParameter(f"there is no setting {name}; {hint}", param_hint=OPTION)
