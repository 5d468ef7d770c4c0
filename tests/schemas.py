"""Published schemas, kept in `tests/unit/manifest/schemas` (`tools/manifest_schemas.py`), and checks against them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

FOLDER = Path(__file__).parent / "unit" / "manifest" / "schemas"


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema with a name: kubernetes, compose, sagemaker."""
    return json.loads((FOLDER / f"{name}.json").read_text())


@functools.cache
def _checker(name: str, kind: str) -> jsonschema.Draft202012Validator:
    whole = schema(name)
    part = whole["kinds"][kind] if kind else {key: value for key, value in whole.items() if key != "$defs"}
    return jsonschema.Draft202012Validator({**part, "$defs": whole.get("$defs", {})})


def faults(name: str, value: Any, kind: str = "") -> list[str]:
    """Return what a schema finds wrong with a value, with its place."""
    found = _checker(name, kind).iter_errors(value)
    return [f"{'/'.join(map(str, fault.absolute_path))}: {fault.message}" for fault in found]


def kubernetes_documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a file, each of which is valid.

    Raises:
        AssertionError: One is not; with what is wrong.
    """
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        assert faults("kubernetes", document, document["kind"]) == []
    return documents
