# SPDX-License-Identifier: Apache-2.0
"""Paths of the console's pages, for links in documents."""

from __future__ import annotations

from urllib.parse import quote


def topic_path(name: str) -> str:
    return f"/topics/{quote(name, safe='')}"


def group_path(name: str) -> str:
    return f"/groups/{quote(name, safe='')}"
