# SPDX-License-Identifier: Apache-2.0
"""The options of `headrace serve` as values. Read next: serve.py (their help), serve_without_typer.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    data: Path | None = None
    listeners: tuple[str, ...] = ()
    port: int | None = None
    ephemeral: bool = False
    config: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    from_env: bool = False
    allow_anonymous: bool = False
    node_id: int | None = None
    coordination: str | None = None
    allow_same_host: bool = False
    metrics_port: int | None = None
    log_format: str | None = None
    log_level: str | None = None
    as_json: bool = False
    cores: str | None = None
    as_core: int | None = None
    """This process is that core of a supervisor's."""
