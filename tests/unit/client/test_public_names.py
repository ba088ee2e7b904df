# SPDX-License-Identifier: Apache-2.0
"""The public names: all are exported and documented, and their types are shipped."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import headrace


@pytest.mark.parametrize("package", ["headrace", "pyspark_headrace", "pyspark_headrace_delta"])
def test_the_types_are_shipped(package: str) -> None:
    assert files(package).joinpath("py.typed").is_file()


def test_every_public_name_is_there_and_documented() -> None:
    source = Path(str(headrace.__file__)).read_text()
    typed = set(re.findall(r"import \w+ as (\w+)$", source, flags=re.MULTILINE))
    assert set(headrace.__all__) == typed
    assert set(headrace.__all__) <= set(dir(headrace))
    undocumented = [
        name
        for name in headrace.__all__
        if (inspect.getdoc(getattr(headrace, name)) or f"{name}(").startswith(f"{name}(")
    ]
    assert undocumented == []


@pytest.mark.parametrize(
    "name", ["Admin", "AsyncStream", "AsyncTransaction", "Selection", "Stream", "Transaction"]
)
def test_every_public_method_is_documented(name: str) -> None:
    methods = inspect.getmembers(getattr(headrace, name), inspect.isfunction)
    assert [key for key, method in methods if not key.startswith("_") and not inspect.getdoc(method)] == []


def test_help_begins_with_an_overview_and_lists_the_options() -> None:
    text = pydoc.plain(pydoc.render_doc(headrace))
    assert "headrace.write([" in text
    assert "HEADRACE_BOOTSTRAP" in text
    assert "class Admin" in text
    assert "compression: 'Compression' = 'none'" in text


def test_what_users_catch_has_one_base() -> None:
    errors = [
        getattr(headrace, name)
        for name in headrace.__all__
        if inspect.isclass(getattr(headrace, name)) and issubclass(getattr(headrace, name), Exception)
    ]
    assert len(errors) >= 10
    assert all(issubclass(error, headrace.HeadraceError) for error in errors)


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'headrace' has no attribute 'reed'"):
        _ = headrace.reed  # type: ignore[attr-defined]


def test_administration_and_errors_need_no_extra() -> None:
    program = """if True:
        import sys
        sys.modules |= {"numpy": None, "pyarrow": None}
        import headrace
        from headrace.testing import Broker
        with Broker() as broker, headrace.Admin(broker.bootstrap) as admin:
            print(admin.topics(), admin.groups(), issubclass(headrace.NoSuchTopic, headrace.ClientError))"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "[] [] True"), done.stderr
