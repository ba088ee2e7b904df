# SPDX-License-Identifier: Apache-2.0
"""The lock names a sum for every file of every dependency; what is derived from it says the same."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path

import pytest

from tests.harness.audit import audit
from tests.harness.lock_hashes import Pin, files_of, normal_name, read_lock, write_lock
from tests.harness.sbom import document

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
PINS = list(read_lock(LOCK))
A, B, C = "a" * 64, "b" * 64, "c" * 64
PAGE = f"""
<a href="x/1.whl#sha256={A}" data-requires-python="&gt;=3.11">My_Lib-1.2-py3-none-any.whl</a>
<a href="x/my-lib-1.2.tar.gz#sha256={B}">my-lib-1.2.tar.gz</a>
<a href="x/my-lib-1.20.tar.gz#sha256={C}">my-lib-1.20.tar.gz</a>
<a href="x/my_lib_more-1.2-py3-none-any.whl#sha256={C}">my_lib_more-1.2-py3-none-any.whl</a>
"""


def test_every_requirement_has_a_sum() -> None:
    assert len(PINS) > 50
    assert not [pin.name for pin in PINS if not pin.hashes]
    assert all(re.fullmatch("[0-9a-f]{64}", each) for pin in PINS for each in pin.hashes)


def test_the_lock_names_no_index_and_no_address() -> None:
    assert "://" not in LOCK
    assert "index-url" not in LOCK


def test_the_lock_has_every_dependency_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: group for name, group in project["optional-dependencies"].items() if name != "fuzz"}
    groups = [project["dependencies"], *extras.values()]  # atheris has wheels for Linux only
    wanted = [each for group in groups for each in group]
    names = {normal_name(re.match(r"[\w.-]+", each)[0]) for each in wanted} - {"headrace"}
    assert names <= {pin.normal_name for pin in PINS}


def test_the_extra_all_has_every_extra_but_those_of_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (requirement,) = project["optional-dependencies"]["all"]
    named = re.fullmatch(r"headrace\[(.+)\]", requirement)[1].split(",")
    assert set(named) == set(project["optional-dependencies"]) - {"all", "bench", "dev", "docs", "fuzz"}


def test_a_lock_is_written_as_it_is_read() -> None:
    assert write_lock(PINS) == LOCK


def test_sums_of_exactly_this_version_are_found() -> None:
    files = files_of(PAGE, Pin("My.Lib", "1.2", ""))
    assert files == {"My_Lib-1.2-py3-none-any.whl": A, "my-lib-1.2.tar.gz": B}


def test_a_line_that_pins_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="not NAME==VERSION"):
        list(read_lock("kio>=0.6\n"))


def test_make_installs_with_sums() -> None:
    assert "--require-hashes -r requirements.lock" in (ROOT / "Makefile").read_text()


def test_the_sbom_lists_the_lock() -> None:
    made = document(PINS, "1.0")
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert len({each["bom-ref"] for each in made["components"]}) == len(PINS)
    assert {"pkg:pypi/kio@" + pin.version for pin in PINS if pin.name == "kio"} <= {
        each["purl"] for each in made["components"]
    }


def _program(directory: Path, script: str) -> str:
    path = directory / "pip-audit"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


WRITE = "while [ $# -gt 0 ]; do [ $1 = --output ] && echo '%s' > $2; shift; done; exit %d"
BAD = '{"dependencies":[{"name":"x","version":"1","vulns":[{"id":"CVE-1","fix_versions":["2"]}]}]}'
SKIPPED = '{"dependencies":[{"name":"x","skip_reason":"not found"},{"name":"y","skip_reason":"not found"}]}'
GOOD = '{"dependencies":[{"name":"x","version":"1","vulns":[]}]}'


def test_an_advisory_fails_the_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(_program(tmp_path, WRITE % (BAD, 1)), tmp_path) == 1
    assert capsys.readouterr().out == "x 1: CVE-1, fixed in 2\n"


def test_no_advisory_passes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(_program(tmp_path, WRITE % (GOOD, 0)), tmp_path) == 0
    assert capsys.readouterr().out == "no advisory for 1 packages\n"


def test_an_audit_without_the_service_says_so_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(_program(tmp_path, "echo 'could not connect' >&2; exit 1"), tmp_path) == 0
    assert "NOT AUDITED: pip-audit got no answer" in capsys.readouterr().err
    assert audit(str(tmp_path / "missing"), tmp_path) == 0
    assert "NOT AUDITED: " in capsys.readouterr().err


def test_packages_without_an_answer_are_named_and_never_called_free_of_advisories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(_program(tmp_path, WRITE % (SKIPPED, 0)), tmp_path) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "NOT AUDITED: no answer about 2 of 2 packages: x, y\n"
