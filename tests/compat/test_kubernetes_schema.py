"""The manifests of deploy/kubernetes against Kubernetes' own OpenAPI schema, as its client library has it."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft4Validator

from tests.harness.left_out import leave_out

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
MODULE = "k8s.io/client-go@v0.32.4"
SCHEMAS = {"v1": "api__v1_openapi.json", "apps/v1": "apis__apps__v1_openapi.json"}
"""The module has no schema of policy/v1: PodDisruptionBudget is not checked here."""
MANIFESTS = [
    manifest
    for file in sorted(FOLDER.glob("*.yaml"))
    for manifest in yaml.safe_load_all(file.read_text())
    if manifest["apiVersion"] in SCHEMAS
]

pytestmark = pytest.mark.compat_go


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By version of the API. Fetched as a module of Go; nothing of it is kept here."""
    if shutil.which("go") is None:
        leave_out("Kubernetes' schema", "no Go: install its tool chain (go)")
    done = subprocess.run(
        ["go", "mod", "download", "-json", MODULE],
        cwd=tmp_path_factory.mktemp("kubernetes"), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        leave_out("Kubernetes' schema", f"{MODULE} could not be fetched: {done.stdout[-300:]}")
    folder = Path(json.loads(done.stdout)["Dir"], "openapi", "openapitest", "testdata")
    found = {version: json.loads((folder / name).read_text()) for version, name in SCHEMAS.items()}
    for document in found.values():
        for schema in document["components"]["schemas"].values():
            _close(schema)
    return found


def _close(schema: dict[str, Any]) -> None:
    """Refuse properties that the schema does not have, as the API server does with strict validation."""
    if "properties" in schema:
        schema["additionalProperties"] = False
    if schema.get("format") == "int-or-string":
        schema["type"] = ["integer", "string"]


def _errors(schemas: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    document = schemas[manifest["apiVersion"]]
    (name,) = (
        name
        for name, schema in document["components"]["schemas"].items()
        if any(_is_kind(each, manifest) for each in schema.get("x-kubernetes-group-version-kind", ()))
    )
    validator = Draft4Validator({**document, "$ref": f"#/components/schemas/{name}"})
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(manifest)]


def _is_kind(found: dict[str, str], manifest: dict[str, Any]) -> bool:
    group, _, version = manifest["apiVersion"].rpartition("/")
    return found == {"group": group, "kind": manifest["kind"], "version": version}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_manifest_is_as_the_schema_has_it(schemas: dict[str, Any], manifest: dict[str, Any]) -> None:
    assert _errors(schemas, manifest) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("replica", 3), ("replicas", "three"), ("ordinals", {"begin": 1}), ("template", {"spec": {}})],
)
def test_the_schema_refuses_a_mistake(schemas: dict[str, Any], key: str, value: Any) -> None:
    manifest = copy.deepcopy(next(each for each in MANIFESTS if each["kind"] == "StatefulSet"))
    manifest["spec"][key] = value
    assert any(error.startswith("spec") for error in _errors(schemas, manifest))
