"""The program that `run_workers` starts for a function: it calls that function in a separate process.

Runs as a file, so that a worker loads only what the function itself imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
import os
import pickle
import sys
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType
from typing import Final

ARGUMENTS_FILE: Final = "arguments.pickle"
VALUE_FILE: Final = "value-{pid}.pickle"
LOADING_FILE: Final = "loading-{pid}"
"""Set while a worker loads the file of the function, because that file must not start workers itself."""


def _load(file: str, name: str) -> ModuleType:
    """Import a file under the name it has in the parent, so that pickled values find their classes."""
    if name == "__main__":
        # As `__mp_main__`, like multiprocessing: under its own name it would start workers that start workers.
        sys.path.insert(0, str(Path(file).parent))
        spawn.import_main_path(file)
        return sys.modules[name]
    path, parts = Path(file), tuple(name.split("."))
    if path.with_suffix("").parts[-len(parts) :] == parts:
        sys.path.insert(0, str(path.parents[len(parts) - 1]))
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _main(file: str, module: str, function: str, folder: str) -> None:
    loading = Path(folder) / LOADING_FILE.format(pid=os.getpid())
    loading.touch()
    called = operator.attrgetter(function)(_load(file, module))
    loading.unlink()
    value = called(*pickle.loads((Path(folder) / ARGUMENTS_FILE).read_bytes()))
    (Path(folder) / VALUE_FILE.format(pid=os.getpid())).write_bytes(pickle.dumps(value))


if __name__ == "__main__":
    _main(*sys.argv[1:])
