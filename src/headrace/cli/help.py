"""How help is shown: boxes and colours on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys
from typing import Literal

HELP_STYLE: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None
