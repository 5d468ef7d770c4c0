"""Writing of the schemas in `tests/unit/manifest/schemas`, from packages that publish them.

    pip install kubernetes-validate kubeflow-trainer-api botocore && npm pack dclint && tar xzf dclint-*.tgz
    python tools/manifest_schemas.py package/schemas/compose.schema.json

Descriptions are left out, and what our documents do not refer to. Where a schema lets everything else pass, fields that
it does not name are refused here, as an API server refuses them with strict checks.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "tests" / "unit" / "manifest" / "schemas"

BUILTIN = {"Job": "job-batch-v1", "Service": "service-v1", "NetworkPolicy": "networkpolicy-networking-v1"}
"""Files of kubernetes-validate."""

OWN_KINDS = {
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "JobsetV1alpha2JobSet"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", "TrainerV1alpha1TrainJob"),
    "TrainingRuntime": ("trainer.kubeflow.org/v1alpha1", "TrainerV1alpha1TrainingRuntime"),
}
"""Kinds of kubeflow-trainer-api, and their models."""


def bare(value: Any) -> Any:
    """Return a schema without descriptions, and without what only documents it."""
    if isinstance(value, list):
        return [bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {name: bare(each) for name, each in entry.items()} if key in ("properties", "$defs") else bare(entry)
        for key, entry in value.items()
        if key not in ("description", "title", "default", "$id", "$schema") and not key.startswith("x-")
    }


def references(value: Any) -> Iterator[str]:
    """Yield the names that a schema refers to."""
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for entry in value.values():
            yield from references(entry)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def reachable(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions that a schema refers to, itself or through others."""
    found: dict[str, Any] = {}
    open_names = list(references(schema))
    while open_names:
        name = open_names.pop()
        if name not in found:
            found[name] = known[name]
            open_names += references(known[name])
    return dict(sorted(found.items()))


def renamed(value: Any) -> Any:
    """Return a schema whose references all lead to its own definitions."""
    if isinstance(value, dict):
        return {
            key: f"#/$defs/{entry.rpartition('/')[2]}" if key == "$ref" and isinstance(entry, str) else renamed(entry)
            for key, entry in value.items()
        }
    return [renamed(each) for each in value] if isinstance(value, list) else value


def of_kubernetes() -> dict[str, Any]:
    """Return the schema of a document of any kind that a manifest has."""
    folder = Path(str(importlib.import_module("kubernetes_validate").__file__)).parent / "kubernetes-json-schema"
    newest = max(folder.glob("v*-local-strict"), key=lambda path: [int(part) for part in path.name[1:-13].split(".")])
    known = json.loads((newest / "_definitions.json").read_text())
    known = known.get("$defs") or known["definitions"]
    kinds = {kind: json.loads((newest / f"{name}.json").read_text()) for kind, name in BUILTIN.items()}
    by_python_name = {
        "".join(word[0].upper() + word[1:] for word in name.split(".")).replace("-", ""): name for name in known
    }
    models = importlib.import_module("kubeflow_trainer_api.models")
    for kind, (version, model) in OWN_KINDS.items():
        schema = of_model(getattr(models, model).model_json_schema(by_alias=True), known, by_python_name)
        schema["properties"] |= {"apiVersion": {"enum": [version]}, "kind": {"enum": [kind]}}
        kinds[kind] = schema
    kinds = bare(renamed(kinds))
    for schema in kinds.values():
        schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    trainer = metadata.version("kubeflow-trainer-api")
    kubernetes = f"kubernetes-validate {metadata.version('kubernetes-validate')} ({newest.name})"
    source = f"Apache-2.0, trimmed: {kubernetes}, kubeflow-trainer-api {trainer}"
    return {"source": source, "kinds": kinds, "$defs": reachable(kinds, bare(renamed(known)))}


def of_model(schema: dict[str, Any], known: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the schema of a model of pydantic; its parts join what is known, unless Kubernetes' own say more."""

    def translated(value: Any) -> Any:
        if isinstance(value, list):
            return [translated(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            name = value["$ref"].rpartition("/")[2]
            return {"$ref": f"#/$defs/{names.get(name, name)}"}
        if len(choices := value.get("anyOf", [])) == 2 and {"type": "null"} in choices:
            return translated(next(choice for choice in choices if choice != {"type": "null"}))
        strict = {"additionalProperties": False} if "properties" in value and value.get("type") == "object" else {}
        return {key: translated(entry) for key, entry in value.items()} | strict

    for name, part in schema.pop("$defs").items():
        if name not in names:
            known[name] = translated(part)
    return translated(schema)


def of_sagemaker() -> dict[str, Any]:
    """Return the schema of a request for a training job."""
    root = Path(str(importlib.import_module("botocore").__file__)).parent / "data" / "sagemaker" / "2017-07-24"
    shapes = json.loads(gzip.decompress((root / "service-2.json.gz").read_bytes()))["shapes"]
    known = {name: of_shape(shape) for name, shape in shapes.items()}
    request = known["CreateTrainingJobRequest"]
    source = f"Apache-2.0, trimmed: botocore {metadata.version('botocore')}, service model of SageMaker"
    return {"source": source, **request, "$defs": reachable(request, known)}


def of_shape(shape: dict[str, Any]) -> dict[str, Any]:
    """Return a shape of Amazon's service models as a JSON schema."""

    def member(entry: dict[str, Any]) -> dict[str, str]:
        return {"$ref": f"#/$defs/{entry['shape']}"}

    if shape["type"] == "structure":
        properties = {name: member(entry) for name, entry in shape["members"].items()}
        required = shape.get("required", [])
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if shape["type"] == "list":
        limits = {"minItems": shape.get("min"), "maxItems": shape.get("max")}
        return {"type": "array", "items": member(shape["member"])} | {
            key: value for key, value in limits.items() if value is not None
        }
    if shape["type"] == "map":
        return {"type": "object", "additionalProperties": member(shape["value"])}
    if shape["type"] == "string":
        pattern = {"pattern": f"^(?:{shape['pattern']})$"} if "pattern" in shape else {}
        limits = {"minLength": shape.get("min"), "maxLength": shape.get("max"), "enum": shape.get("enum")}
        return {"type": "string", **pattern} | {key: value for key, value in limits.items() if value is not None}
    names = {"boolean": "boolean", "integer": "integer", "long": "integer", "timestamp": "string"}
    limits = {"minimum": shape.get("min"), "maximum": shape.get("max")}
    return {"type": names.get(shape["type"], "number")} | {
        key: value for key, value in limits.items() if value is not None
    }


def main(compose: str) -> None:
    """Write all schemas.

    Args:
        compose: The schema of compose files.
    """
    files = {"kubernetes": of_kubernetes(), "sagemaker": of_sagemaker()}
    text = bare(json.loads(Path(compose).read_text()))
    files["compose"] = {"source": "Apache-2.0, trimmed: compose-spec, from the npm package dclint 3.1.0", **text}
    FOLDER.mkdir(exist_ok=True)
    for name, schema in files.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(schema, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
