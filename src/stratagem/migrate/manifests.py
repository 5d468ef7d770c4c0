"""Convert files with TFJobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from stratagem.core.errors import InputError, name_some
from stratagem.manifest import pods
from stratagem.manifest.yaml_text import documents
from stratagem.migrate import jobs, tfjob

_TEMPLATES: Final = {
    r"\{\{": ("a Helm template", "Fill it in first: helm template NAME CHART > filled.yaml"),
    r"(?m)^(local |import )|std\.": ("a ksonnet or Jsonnet program", "Run it first: ks show, or jsonnet FILE"),
}
"""Marks of templates that are not YAML yet, and the tool that makes YAML of each."""


class ConvertedFile(NamedTuple):
    """A file with its TFJobs converted.

    Args:
        text: Its new text.
        notes: What was left out or means something different, and what to do.
    """

    text: str
    notes: list[str]


class _Loader(yaml.SafeLoader):
    """Reads YAML as Kubernetes does: a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def convert_file(path: Path, kind: str) -> ConvertedFile:
    """Return a file whose TFJobs are converted to jobs of another kind; its other documents stay.

    Args:
        path: The file.
        kind: One of `jobs.KINDS`.

    Raises:
        InputError: The file is not YAML, has no TFJob, or has one that cannot be converted.
        OSError: The file cannot be read.
    """
    text = path.read_text("utf-8")
    found = [each for document in _documents(text) if document is not None for each in _parts(document)]
    if not any(map(tfjob.is_tfjob, found)):
        raise InputError(f"The file has no TFJob, but {_what(found)}.", _remedy(found))
    written: list[Any] = []
    notes: list[str] = []
    how: list[str] = []
    for document in found:
        if not tfjob.is_tfjob(document):
            written.append(document)
            continue
        job = tfjob.read(document)
        converted = jobs.convert(job, kind)
        written += converted.documents
        notes += converted.notes
        how += ["", *pods.how_to_start(job.name, job.namespace, converted.labels)]
    if re.search(r"(?m)^\s*#|\s#", text):
        notes.append("The comments of the file are left out.")
    head = "\n".join(
        [
            f"Converted from {path.name} by `stratagem migrate --manifest --for {kind}`.",
            "",
            "Not run on a real cluster: its fields were checked against the published schemas of the kinds.",
            *how,
        ]
    )
    return ConvertedFile(documents(head, *written), notes)


def _documents(text: str) -> list[Any]:
    try:
        return list(yaml.load_all(text, _Loader))
    except yaml.YAMLError as error:
        for pattern, (what, remedy) in _TEMPLATES.items():
            if template := re.search(pattern, text):
                line = text.count("\n", 0, template.start()) + 1
                raise InputError(f"Line {line} belongs to {what}, so the file is not YAML yet.", f"{remedy}.") from None
        raise InputError(f"The file is not valid YAML: {_fault(error, text)}", "Correct that line.") from None


def _parts(document: Any) -> list[Any]:
    """Return the documents of a list, as `kubectl get` prints it; any other document itself."""
    if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return document["items"]
    return [document]


def _fault(error: yaml.YAMLError, text: str) -> str:
    """Return what is wrong with YAML, with its line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{error}."
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = getattr(error, "problem", None) or "it cannot be read"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}.\n    {line}\n    {' ' * mark.column}^"


def _what(found: list[Any]) -> str:
    kinds = [str(each.get("kind", "no kind")) if isinstance(each, dict) else type(each).__name__ for each in found]
    return name_some(dict.fromkeys(kinds)) or "nothing"


def _remedy(found: list[Any]) -> str:
    """Say where a TFJob may be, in a document of another kind."""
    for document in found:
        if isinstance(document, dict) and "tfjob" in str(document).lower():
            name = document.get("kind", "document")
            return (
                f"The {name} contains a TFJob as text or as a part. Put it into a separate file, and convert that file."
            )
    return "Name a file with a document of kind: TFJob."
