# SPDX-License-Identifier: Apache-2.0
"""The views of these tests exist by name; a fake source makes their documents."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.console.views.registry import VIEWS


@pytest.fixture(autouse=True)
def _views(monkeypatch: pytest.MonkeyPatch) -> None:
    view: Any = object()
    for name in ("cluster", "topic"):
        monkeypatch.setitem(VIEWS, name, view)
