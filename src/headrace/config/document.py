# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/configuration.md, written from the settings themselves so that the two cannot drift.

`python -m headrace.config.document docs/configuration.md` rewrites the part between the markers;
a test in tests/docs compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from headrace.config.group_settings import GROUP_SETTINGS
from headrace.config.node_settings import NODE_GROUPS
from headrace.config.setting import INT_MAX, LONG_MAX, Setting
from headrace.config.topic_settings import TOPIC_SETTINGS

BEGIN = "<!-- settings: written by python -m headrace.config.document -->"
END = "<!-- end of settings -->"

_LARGEST = {LONG_MAX: "no limit", INT_MAX: "no limit"}


def settings_tables() -> str:
    parts = ["## Settings of a node"]
    for title, settings in NODE_GROUPS.items():
        parts += [f"### {title}", _table(settings, "while running", _dynamic)]
    effective = [setting for setting in TOPIC_SETTINGS.values() if setting.effective]
    accepted = [setting for setting in TOPIC_SETTINGS.values() if not setting.effective]
    parts += [
        "## Settings of a topic",
        "All of them can be altered while the node runs.",
        _table(effective, "default comes from", _behind),
        "### Accepted, no effect",
        "Kafka has these, and clients and tools set them. Their values are checked and kept, and do nothing.",
        _table(accepted, "why", lambda setting: setting.doc, with_doc=False),
        "## Settings of a group",
        "For groups of the consumer protocol (KIP-848), altered while the node runs, e.g. by kafka-configs.",
        _table(GROUP_SETTINGS.values(), "default comes from", _behind),
    ]
    return "\n\n".join(parts)


def rewrite(text: str) -> str:
    """The document with fresh tables between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{settings_tables()}\n\n{END}{after}"


def _table(
    settings: Iterable[Setting],
    last_column: str,
    last_cell: Callable[[Setting], str],
    *,
    with_doc: bool = True,
) -> str:
    heads = ["name", "default", "allowed", *(["meaning"] if with_doc else []), last_column]
    rows = [heads, ["---"] * len(heads)]
    for setting in settings:
        cells = [f"`{setting.name}`{_aliases(setting)}", _default(setting), _allowed(setting)]
        rows.append([*cells, *([setting.doc] if with_doc else []), last_cell(setting)])
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def _aliases(setting: Setting) -> str:
    return "".join(f" (or `{alias}`)" for alias in setting.aliases)


def _default(setting: Setting) -> str:
    if setting.default in _LARGEST and setting.kind in ("int", "long"):
        return _LARGEST[setting.default]
    text = setting.format(setting.default)
    return "not set" if text is None else f"`{text}`" if text else "empty"


def _allowed(setting: Setting) -> str:
    return setting.kind if setting.validator is None else f"{setting.kind}; {setting.validator.text}"


def _dynamic(setting: Setting) -> str:
    return "yes" if setting.dynamic else "no"


def _behind(setting: Setting) -> str:
    return ", else ".join(f"`{synonym.name}`" for synonym in setting.synonyms) or "–"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m headrace.config.document docs/configuration.md", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
