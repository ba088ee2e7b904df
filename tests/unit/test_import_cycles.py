# SPDX-License-Identifier: Apache-2.0
"""No module imports itself through others; imports under TYPE_CHECKING count as well.

Circles between packages are a contract of import-linter (pyproject.toml).
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(
        "headrace",
        "pyspark_headrace",
        "pyspark_headrace_delta",
        exclude_type_checking_imports=False,
        cache_dir=None,
    )
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as cycle:
        pytest.fail(" imported by ".join(cycle.args[1]))
