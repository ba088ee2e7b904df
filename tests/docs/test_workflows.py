# SPDX-License-Identifier: Apache-2.0
"""The files of .github are as their schemas have them, and name targets, scripts and versions that exist.

actionlint also reads expressions and inputs of actions. It runs in `make compat`, built from its source in Go
(tests/compat/test_actionlint.py): its package for Python downloads a program while it is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text()) for path in sorted((GITHUB / "workflows").glob("*.yml"))
}
FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
JOBS = [
    pytest.param(job, id=f"{name}-{key}")
    for name, workflow in WORKFLOWS.items()
    for key, job in workflow["jobs"].items()
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _commands() -> Iterator[str]:
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            yield from (step["run"] for step in job["steps"] if "run" in step)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", sorted((GITHUB / "workflows").glob("*.yml"))),
        ("vendor.dependabot", [GITHUB / "dependabot.yml"]),
        ("vendor.github-issue-forms", FORMS),
        ("vendor.github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
    ],
)
def test_files_are_as_the_schema_has_them(schema: str, files: list[Path]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for command in _commands() for target in re.findall(r"\bmake ([a-z-]+)", command)}
    nightly = set(WORKFLOWS["check.yml"]["jobs"]["suite"]["strategy"]["matrix"]["target"])
    assert {"test", "lock", "audit", "dist", "wheels"} <= named <= targets
    assert nightly == {"check", "compat", "coverage"} <= targets


def test_every_file_that_a_step_runs_exists() -> None:
    pattern = re.compile(r"\b(?:tests|src|bench)/[\w./-]+")
    named = {path for command in _commands() for path in pattern.findall(command)}
    assert named == {"tests/harness/smoke.py", "src/headrace/version.py"}
    assert all((ROOT / path).is_file() for path in named)


def test_every_supported_python_is_tested() -> None:
    tested = WORKFLOWS["test.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    classifiers = "\n".join(PROJECT["classifiers"])
    assert tested == re.findall(r"^Programming Language :: Python :: (3\.\d+)$", classifiers, re.MULTILINE)


def test_the_wheel_is_tried_on_three_platforms() -> None:
    job = WORKFLOWS["test.yml"]["jobs"]["wheel"]
    assert job["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    assert job["defaults"]["run"]["shell"] == "bash", "Windows' own shell does not expand dist/*.whl"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_only_read_the_repository(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    assert "secrets." not in (GITHUB / "workflows" / name).read_text()


def test_only_the_tag_of_a_version_is_published_and_without_a_password() -> None:
    jobs = WORKFLOWS["release.yml"]["jobs"]
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["if"] == "github.ref_type == 'tag'"
    assert set(publish["needs"]) == set(jobs) - {"publish"}
    assert all("password" not in step.get("with", {}) for step in publish["steps"])


@pytest.mark.parametrize("job", JOBS)
def test_a_job_ends_by_itself_and_uses_versions_of_actions(job: dict[str, Any]) -> None:
    assert job["timeout-minutes"] <= 120
    allowed = r"actions/[a-z-]+@v\d+|pypa/gh-action-pypi-publish@release/v1"
    for step in job["steps"]:
        assert "run" in step or re.fullmatch(allowed, step["uses"]), step


def test_dependabot_watches_what_is_there() -> None:
    file = yaml.safe_load((GITHUB / "dependabot.yml").read_text())
    assert file["version"] == 2
    assert {update["package-ecosystem"] for update in file["updates"]} == {"github-actions", "docker"}
    for update in file["updates"]:
        assert (ROOT / update["directory"].strip("/")).is_dir()
        assert update["schedule"]["interval"] in ("daily", "weekly", "monthly")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_asks_for_what_is_needed(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_templates_name_files_targets_and_commands_that_exist() -> None:
    texts = [path.read_text() for path in [*FORMS, GITHUB / "pull_request_template.md"]]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for text in texts:
        assert all((ROOT / name).exists() for name in re.findall(r"\b(?:docs/)?[\w-]+\.md\b", text))
        assert set(re.findall(r"`make ([a-z-]+)`", text)) <= targets


def test_the_smoke_test_of_the_wheel_passes_on_this_tree() -> None:
    """As the workflow calls it, with the installed package, or the tree that PYTHONPATH names."""
    done = subprocess.run(
        [sys.executable, "-P", "tests/harness/smoke.py"],
        cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "10 records came back" in done.stdout
