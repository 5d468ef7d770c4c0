"""The layers of docs/architecture: who may import whom, and what an import may do."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import stratagem

PACKAGE = Path(stratagem.__file__).parent
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"

CORE: tuple[dict[str, str], ...] = (
    {"core": "terms and values of all layers: errors, options, findings, deadlines, names of environment variables"},
    {
        "cluster": "the tasks of the cluster, and which one this is; how tasks meet, agree and end",
        "data": "`Dataset`: a global order, of which each worker reads its rows; the check of a dataset",
        "host_memory": "sums over the processes of a host through shared memory; independent of traces and meshes",
        "keras": "the module `keras` as `stratagem.keras`, which always uses JAX",
        "transport": "messages with arrays between tasks: bounded, versioned, authenticated (ZeroMQ)",
    },
    {
        "elastic": "the members that train together, and changes when one dies; imports neither JAX nor Keras",
        "insight": "how tasks spend their time, sampled from outside; `stratagem top`; imports neither JAX nor Keras",
    },
    {
        "help": "`stratagem help`: the guides, in the terminal; imports neither JAX nor Keras",
        "launch": "`stratagem run`; imports neither JAX nor Keras",
        "manifest": "`stratagem manifest`: files that start a program on a cluster; imports neither JAX nor Keras",
        "mesh": "the mesh, shares of a batch, placement of values, policies of variables, packed sums",
    },
    {
        "compression": "compressed gradients, and the residuals for the next step",
        "program": "compiling a step, finding the variables it touches and the program of a call",
        "testing": "real workers and virtual devices for tests",
    },
    {
        "ps": "parameter servers: remote variables, their updates, the coordinator and its state machine",
        "replica": "the context of a replica, `run`, `reduce`, merging, uneven batches",
    },
    {
        "checkpoint": "checkpoints, their manager, preemption; `stratagem.train` has the public names",
        "feed": "the path of a batch from the user's data to rows on devices",
        "loop": "`stratagem.function`, `GradientTape`, losses of custom loops",
    },
    {"fit": "`fit`, `evaluate` and `predict` of a model under a strategy: steps, gradients, resuming"},
    {"backup": "`BackupAndRestore`: the contents and times of backups; `stratagem.callbacks` has the name"},
    {"inspection": "`Inspect`: whether replicas agree, and the origin of NaN; `stratagem.callbacks` has the name"},
    {"strategy": "the public strategies: each chooses devices and the chief"},
    {
        "demo": "`stratagem demo`: two workers train on digits inside the package; it starts without JAX and Keras",
        "doctor": "`stratagem doctor`: compares facts of all tasks, times sums, and checks a dataset",
        "plan": "`stratagem plan`: predicts a step on more workers and on other devices",
        "replay": "`stratagem replay`: runs a step of a program again from its last backup",
    },
)
"""The core: a folder imports from itself and from the layers before its own."""

RING: tuple[dict[str, str], ...] = (
    {"tf": "TensorFlow's names, in tables that are loaded when a name is first used"},
    {"estimator": "`model_fn` as a compiled step for each mode, its checkpoints, hooks, `train_and_evaluate`"},
    {"migrate": "`stratagem migrate`: a program's syntax tree, its names, and whether `tf` has them"},
)
"""The ring round the core: TensorFlow's older interfaces. Nothing in the core imports it."""

LAYERS = (*CORE, *RING)

RANK = {folder: rank for rank, folders in enumerate(LAYERS) for folder in folders}
TOP = len(LAYERS)
USERS = ("stratagem.demo.program",)
"""Programs as users write them: they import what users import, and nothing imports them."""
PRIVATE_APIS = ("keras.src", "jax._src", "jax.interpreters", "jaxlib")


class Import(NamedTuple):
    """One imported module, where it stands, and whether inside a function."""

    target: str
    line: int
    in_function: bool


def imports_of(tree: ast.AST, module: str, *, in_function: bool = False) -> Iterator[Import]:
    """Yield every import below `tree`, those under `if TYPE_CHECKING` too."""
    for node in ast.iter_child_nodes(tree):
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, in_function)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = ".".join(module.split(".")[: -node.level])
                base = f"{parent}.{base}".rstrip(".")
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno, in_function)
        else:
            yield from imports_of(node, module, in_function=inside)


def folder_of(module: str) -> str | None:
    """Return the folder of `stratagem` that `module` lies in, None for what lies beside the folders."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in RANK else None


def rank_of(module: str) -> int:
    folder = folder_of(module)
    return TOP if folder is None or module in USERS else RANK[folder]


def violations(source: str, module: str, file_name: str) -> list[str]:
    """Return each broken rule of one file, as `line: what`."""
    found = []
    for target, line, in_function in imports_of(ast.parse(source), module):
        if target.startswith(PRIVATE_APIS) and file_name != "compat.py":
            found.append(f"{line}: {target} is private; use it in a compat.py only")
        if not (target == "stratagem" or target.startswith("stratagem.")):
            continue
        if in_function:
            found.append(f"{line}: {target} is imported inside a function")
        same_folder = folder_of(module) is not None and folder_of(module) == folder_of(target)
        if rank_of(module) < TOP and not same_folder and rank_of(target) >= rank_of(module):
            found.append(f"{line}: {folder_of(module)} must not import {target}")
    return found


def module_name(file: Path) -> str:
    """Return the name by which a file is imported."""
    return module_of(file).removesuffix(".__init__")


def import_graph(sources: dict[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Return which modules each module imports.

    Args:
        sources: By the name of a module, the name that relative imports count from, and its text.
    """
    graph: dict[str, set[str]] = {}
    for name, (origin, text) in sources.items():
        graph[name] = set()
        for target, _, _ in imports_of(ast.parse(text), origin):
            found = next((each for each in (target, target.rpartition(".")[0]) if each in sources), None)
            if found not in (None, name):
                graph[name].add(str(found))
    return graph


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, an empty list where none do."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_of(file: Path) -> str:
    """Return the dotted name of a file; a package's `__init__` keeps that last part, as relative imports count it."""
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_file_keeps_to_its_layer(file: Path) -> None:
    assert violations(file.read_text(encoding="utf-8"), module_of(file), file.name) == []


def test_every_folder_has_a_layer() -> None:
    folders = {file.parent.relative_to(PACKAGE).parts[0] for file in source_files() if file.parent != PACKAGE}
    assert folders - RANK.keys() == set()


@pytest.mark.parametrize(
    ("source", "module", "expected"),
    [
        ("from stratagem.core.errors import explain", "stratagem.cluster.spec", []),
        ("import stratagem.mesh.mesh", "stratagem.core.clock", ["1: core must not import stratagem.mesh.mesh"]),
        ("from stratagem import mesh", "stratagem.launch.cli", ["1: launch must not import stratagem.mesh"]),
        ("from stratagem.elastic.server import Server", "stratagem.launch.cli", []),
        ("from ..fit import bind", "stratagem.data.dataset", ["1: data must not import stratagem.fit.bind"]),
        ("from . import plan", "stratagem.launch.cli", []),
        ("import stratagem", "stratagem.fit.bind", ["1: fit must not import stratagem"]),
        ("import stratagem", "stratagem.demo.program", []),
        ("import stratagem.demo.program", "stratagem.launch.cli", ["1: launch must not import stratagem.demo.program"]),
        ("from stratagem.estimator import Estimator", "stratagem.__init__", []),
        ("import jax._src.core", "stratagem.replica.run", ["1: jax._src.core is private; use it in a compat.py only"]),
        (
            "def f():\n    from stratagem.core import log",
            "stratagem.fit.bind",
            ["2: stratagem.core.log is imported inside a function"],
        ),
    ],
)
def test_rules_find_what_they_are_for(source: str, module: str, expected: list[str]) -> None:
    assert violations(source, module, "some_file.py") == expected


def test_no_circle_of_imports() -> None:
    graph = import_graph({module_name(file): (module_of(file), file.read_text("utf-8")) for file in source_files()})
    assert circle(graph) == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"a": "import b", "b": "import c", "c": ""}, []),
        ({"a": "import b, c", "b": "import c", "c": ""}, []),
        ({"a": "import b", "b": "import c", "c": "from b import x"}, ["b", "c"]),
        ({"p": "", "p.a": "from p import b", "p.b": "from p.a import name"}, ["p.a", "p.b"]),
        ({"p.a": "if TYPE_CHECKING:\n    from .b import x", "p.b": "import p.a"}, ["p.a", "p.b"]),
    ],
)
def test_circles_are_found(texts: dict[str, str], expected: list[str]) -> None:
    found = circle(import_graph({name: (name, text) for name, text in texts.items()}))
    assert sorted(set(found)) == expected


def table() -> str:
    """Return the table of layers for docs/architecture.md."""
    rows = [f"| {rank} | `{name}` | {what} |" for rank, layer in enumerate(LAYERS, 1) for name, what in layer.items()]
    return "\n".join(["| layer | folder | what it is |", "| --- | --- | --- |", *rows])


def test_table_of_layers_in_the_documentation() -> None:
    assert table() in ARCHITECTURE.read_text("utf-8"), f"docs/architecture.md should have:\n{table()}"


def in_fresh_process(program: str) -> object:
    """Run `program` in a new interpreter and return the JSON it prints last."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "module",
    [
        "stratagem",
        "stratagem.core.log",
        "stratagem.launch.cli",
        "stratagem.manifest.__main__",
        "stratagem.elastic.server",
        "stratagem.elastic.world_store",
        "stratagem.__main__",
        "stratagem.help.__main__",
        "stratagem.demo.__main__",
    ],
)
def test_light_modules_load_nothing_heavy(module: str) -> None:
    loaded = in_fresh_process(f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))")
    assert isinstance(loaded, list)
    assert {"jax", "jaxlib", "keras", "numpy", "tensorflow", "torch"} & set(loaded) == set()


def test_import_changes_only_the_backend_of_keras() -> None:
    changed = in_fresh_process(
        "import json, logging, os, signal, sys, threading, warnings\n"
        "def world():\n"
        "    signals = {str(s): repr(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)}\n"
        "    return {'environment': dict(os.environ), 'handlers': len(logging.getLogger().handlers),\n"
        "            'threads': threading.active_count(), 'filters': len(warnings.filters),\n"
        "            'hooks': [repr(sys.excepthook), repr(threading.excepthook)], **signals}\n"
        "os.environ.pop('KERAS_BACKEND', None)\n"
        "before = world()\n"
        "import stratagem\n"
        "after = world()\n"
        "after['environment'].pop('KERAS_BACKEND', None)\n"
        "print(json.dumps([key for key in before if before[key] != after[key]]))\n"
    )
    assert changed == []
