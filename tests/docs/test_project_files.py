# SPDX-License-Identifier: Apache-2.0
"""What a project says of itself to contributors: hooks that run what `make lint` runs, files that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md")


def test_hooks_run_the_programs_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    run = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    recipe = re.search(r"^lint: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert run == set(re.findall(r"^\t\$\(BIN\)/([\w-]+)", recipe[1], re.MULTILINE))
    assert {repository["repo"] for repository in config["repos"]} == {"local"}, "versions come from the lock"


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_to_files(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", (ROOT / page).read_text())
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_contributors_are_told_of_the_rules_and_the_hooks() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name in ("CODE_OF_CONDUCT.md", "SECURITY.md", ".pre-commit-config.yaml", ".github/workflows"):
        assert name in text, name


def test_every_source_file_names_its_licence() -> None:
    kinds = ("*.py", "*.c", "*.h", "*.java", "*.go")
    listed = subprocess.run(["git", "ls-files", *kinds], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.splitlines()]
    texts = {path: path.read_text() for path in files if path.exists()}
    unnamed = [
        path
        for path, text in texts.items()
        if text and "SPDX-License-Identifier: Apache-2.0" not in text[:300]
    ]
    assert files
    assert unnamed == []
