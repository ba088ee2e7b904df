# SPDX-License-Identifier: Apache-2.0
"""docs/configuration.md lists every setting, and every setting is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import NODE_SETTINGS, TOPIC_SETTINGS
from headrace.config.document import rewrite

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "configuration.md"
SOURCE = ROOT / "src" / "headrace"

READ_AS_PROPERTIES = {
    "listeners", "advertised.listeners", "listener.security.protocol.map", "listeners.allow.anonymous",
    "log.dirs", "headrace.coordination", "ssl.keystore.type", "ssl.truststore.type",
    "headrace.metrics.ssl.client.auth", "headrace.metrics.ssl.key.password",
    "headrace.metrics.ssl.keystore.location", "headrace.metrics.ssl.truststore.location",
}  # fmt: skip
"""Used through NodeConfig.listeners, data_directory, coordination_directory and key_of_metrics; types of
stores are checked only."""


def test_the_tables_are_those_of_the_settings():
    text = DOCUMENT.read_text()
    assert rewrite(text) == text, "run: python -m headrace.config.document docs/configuration.md"


def test_every_setting_says_what_it_means():
    for setting in (*NODE_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        assert setting.doc.endswith("."), setting.name


def _source_outside_config() -> str:
    files = (path for path in SOURCE.rglob("*.py") if "config" not in path.relative_to(SOURCE).parts[:-1])
    return "\n".join(path.read_text() for path in files)


def test_no_setting_is_without_effect():
    """A key that nothing reads is a promise that nobody keeps."""
    source = _source_outside_config()
    behind_topics = {synonym.name for setting in TOPIC_SETTINGS.values() for synonym in setting.synonyms}
    effective = {name for name, setting in TOPIC_SETTINGS.items() if setting.effective}
    of_nodes = {name for name, setting in NODE_SETTINGS.items() if setting.effective}
    named = (of_nodes - behind_topics - READ_AS_PROPERTIES) | effective
    unused = sorted(name for name in named if f'"{name}"' not in source)
    assert not unused


def test_properties_of_the_configuration_are_used():
    source = _source_outside_config()
    for name in (".listeners", ".data_directory", ".coordination_directory"):
        assert name in source


@pytest.mark.parametrize("name", ["configuration", "concepts", "operations", "containers", "protocol"])
def test_the_document_exists_and_is_reached_from_the_readme(name):
    assert (ROOT / "docs" / f"{name}.md").exists()
    assert f"docs/{name}.md" in (ROOT / "README.md").read_text()
