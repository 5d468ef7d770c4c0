"""Records what TensorFlow computes for the cases, into `goldens/`.

Run in an environment of its own with TensorFlow 2.21 and tf_keras 2.21, from the root of the repository; tests never
need it:

    python -m tests.unit.tf.operations.record [area ...]
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
from tests.unit.tf.operations import table

UNSUPPORTED = ("NotFoundError", "UnimplementedError", "InvalidArgumentError", "TypeError", "ValueError")


def record(tf: Any, area: str) -> list[str]:
    """Return the lines of a file; complain of cases that fail and are not said to."""
    lines, complaints = [], []
    for case in table.cases(area):
        line: dict[str, Any] = {"case": case.text}
        for dtype in case.dtypes:
            try:
                line[dtype] = found(tf, case, dtype)
                if case.raises:
                    complaints.append(f"{case.text}: did not raise")
            except Exception as error:
                kind = type(error).__name__
                if case.raises:
                    line[dtype] = {"raises": kind}
                elif dtype not in ("float32", "as given") and kind in UNSUPPORTED:
                    line[dtype] = {"unsupported": kind}
                else:
                    complaints.append(f"{case.text} [{dtype}]: {kind}: {str(error)[:300]}")
        lines.append(json.dumps(line, ensure_ascii=False))
    for complaint in complaints:
        print(f"{area}: {complaint}", file=sys.stderr)
    return lines


def found(tf: Any, case: table.Case, dtype: str) -> dict[str, Any]:
    """Return what TensorFlow computes for a case, as text."""
    value, first, second = table.run(tf, case, dtype, tf.convert_to_tensor)
    result: dict[str, Any] = {"value": [table.written(leaf) for leaf in value]}
    for key, gradients in (("first", first), ("second", second)):
        if gradients is not None:
            result[key] = [None if g is None else table.written(g) for g in gradients]
    return result


def parameters(tf: Any) -> list[str]:
    """Return lines of functions, their parameters, and the defaults that text can say."""
    lines = []
    for namespace in table.WITH_PARAMETERS:
        module = tf
        for part in namespace.split(".")[1:]:
            module = getattr(module, part, None)
        for name in sorted(dir(module)):
            value = getattr(module, name)
            if callable(value) and not name.startswith("_") and not inspect.isclass(value):
                with contextlib.suppress(ValueError):
                    lines.append(f"{namespace}.{name}: {table.parameters(value)}")
    return lines


def main() -> None:
    """Record the areas that are named, or all: those of `keras3` with Keras 3, the others with Keras 2."""
    names = sys.argv[1:] or table.areas()
    legacy = not names[0].startswith("keras3")
    here = [name for name in names if name.startswith("keras3") != legacy]
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if legacy else "0"
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    tf = importlib.import_module("tensorflow")
    keras = importlib.import_module("tf_keras" if legacy else "keras")
    versions = {"tensorflow": tf.__version__, keras.__name__: keras.__version__, "numpy": np.__version__}
    if legacy and len(sys.argv) == 1:
        written = "\n".join(parameters(tf)) + "\n"
        (table.FOLDER / "goldens" / "parameters.txt").write_text(written, encoding="utf-8")
    for area in here:
        lines = [json.dumps(versions), *record(tf, area)]
        (table.FOLDER / "goldens" / f"{area}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{area}: {len(lines) - 1} cases")
    if rest := [name for name in names if name not in here]:
        subprocess.run([sys.executable, "-m", "tests.unit.tf.operations.record", *rest], check=True)


if __name__ == "__main__":
    main()
