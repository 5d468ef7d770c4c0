"""Modules of `stratagem.tf` are real, lazy, cheap, and explain what they lack."""

from __future__ import annotations

import ast
import importlib
import json
import pickle
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stratagem
import stratagem.tf as tf
from stratagem.tf.namespace import Modules

PACKAGE = Path(stratagem.__file__).parent


OWN_NAMES = dict(
    line.split(":") for line in (Path(__file__).parent / "own_names.txt").read_text(encoding="utf-8").splitlines()
)
"""The modules that programs import, and their names beside those of Keras and of `stratagem` they pass on."""


def in_fresh_process(program: str) -> Any:
    """Run a program in a new interpreter and return the JSON it prints last."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_import_costs_less_than_200_000_additions_and_loads_nothing_heavy() -> None:
    """That is 13 ms on a quick machine and 29 ms on a slow one; of the processor, which may be doing other things."""
    program = (
        "import json, sys, time, stratagem\n"
        "begin = time.process_time()\n"
        "import stratagem.tf as tf\n"
        "imported, total = time.process_time(), 0\n"
        "for number in range(200_000):\n"
        "    total += number\n"
        "added = time.process_time()\n"
        "loaded = sorted({'jax', 'keras', 'numpy'} & set(sys.modules))\n"
        "print(json.dumps([(imported - begin) / (added - imported), loaded]))\n"
    )
    found = [in_fresh_process(program) for _ in range(5)]
    assert statistics.median(ratio for ratio, _ in found) < 1.0
    assert all(loaded == [] for _, loaded in found)


def test_a_worker_runs_the_models_of_its_chief_as_tf_keras_does() -> None:
    """Its program asks for the server alone; targets of shape (n,) beside outputs (n, 10) stopped `fit` there."""
    found = in_fresh_process(
        "import json\n"
        "import stratagem.tf as tf\n"
        "tf.distribute.Server\n"
        "import keras\n"
        "model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(10, kernel_initializer='zeros')])\n"
        "model.compile('sgd', 'mse')\n"
        "print(json.dumps(model.evaluate(keras.ops.ones((4, 2)), keras.ops.array([1.0, 2, 3, 4]), verbose=0)))\n"
    )
    assert found == 7.5


def test_asking_for_names_does_not_start_jax() -> None:
    """A strategy of several workers, and virtual devices, must come before JAX's devices."""
    started = in_fresh_process(
        "import json\n"
        "import stratagem.tf as tf\n"
        "tf.config.list_physical_devices(), tf.config.list_logical_devices('GPU')\n"
        "tf.distribute.MirroredStrategy, tf.keras.layers.Dense, tf.data.Dataset, tf.function, tf.train.Checkpoint\n"
        "tf.summary.create_file_writer('/no/such/folder'), tf.data.Dataset.range(3).batch(2)\n"
        "from stratagem.cluster.compat import backends_started\n"
        "print(json.dumps(backends_started()))\n"
    )
    assert started is False


def test_nothing_in_the_core_imports_it() -> None:
    importing = []
    for file in PACKAGE.rglob("*.py"):
        if any(file.is_relative_to(PACKAGE / folder) for folder in ("tf", "estimator", "migrate")):
            continue  # the ring round the core
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(f"{name}.".startswith("stratagem.tf.") for name in names):
                importing.append(str(file))
    assert importing == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("stratagem.tf.data.experimental", "AutoShardPolicy"),
        ("stratagem.tf.distribute.cluster_resolver", "TFConfigClusterResolver"),
        ("stratagem.tf.distribute.coordinator", "ClusterCoordinator"),
        ("stratagem.tf.distribute.experimental", "CommunicationOptions"),
        ("stratagem.tf.distribute.experimental.coordinator", "PerWorkerValues"),
        ("stratagem.tf.distribute.experimental.partitioners", "MinSizePartitioner"),
        ("stratagem.tf.keras.applications.resnet50", "preprocess_input"),  # no file of ours: Keras's module
        ("stratagem.tf.keras.layers", "Dense"),
    ],
)
def test_path_is_a_module(module: str, name: str) -> None:
    found = importlib.import_module(module)
    scope: dict[str, object] = {}
    exec(f"from {module} import {name}", scope)
    assert scope[name] is getattr(found, name)
    assert name in dir(found)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("from stratagem.tf import lite", "tf.lite"),
        ("import stratagem.tf.contrib", "tf.contrib"),
        ("from stratagem.tf.contrib.layers import flatten", "tf.contrib"),
        ("from stratagem.tf.keras import nonsense", "tf.keras.nonsense"),
        ("from stratagem.tf.keras.layers import Dese", "tf.keras.layers.Dese"),
        ("from stratagem.tf.train import Sever", "tf.train.Sever"),
        ("import stratagem.tf.train.nonsense", "tf.train.nonsense"),
        ("from stratagem.tf.distribute.experimental import rpc", "tf.distribute.experimental.rpc"),
    ],
)
def test_import_of_what_is_missing_says_what_to_write(statement: str, name: str) -> None:
    with pytest.raises(ImportError, match=r"is not in stratagem\.tf") as caught:
        exec(statement, {})
    assert str(caught.value).startswith(f"{name} is not in stratagem.tf.\n")
    assert "What to do:" in str(caught.value)


def test_import_of_what_is_no_module_says_what_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"tf\.data\.Dataset is not a module"):
        importlib.import_module("stratagem.tf.data.Dataset")


def test_other_packages_are_left_to_python() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'") as caught:
        importlib.import_module("no_such_package")
    assert caught.value.name == "no_such_package"


def test_a_name_is_looked_up_once() -> None:
    module = importlib.import_module("stratagem.tf.train")
    vars(module).pop("ClusterSpec", None)
    assert module.ClusterSpec is vars(module)["ClusterSpec"]


@pytest.mark.parametrize("path", OWN_NAMES)
def test_every_module_keeps_its_names(path: str) -> None:
    module = importlib.import_module(f"stratagem.{path}")
    names = OWN_NAMES[path].split()
    assert set(names) - set(dir(module)) - {"cast", "complex", "saturate_cast"} == set()
    assert [name for name in names if not hasattr(module, name)] == []
    assert module.__doc__


def test_every_module_is_imported_by_its_path_alone() -> None:
    """The modules above it need not have been asked for it."""
    paths = [f"stratagem.{path}" for path in OWN_NAMES]
    program = f"import importlib, json, sys\nfor path in {paths}: importlib.import_module(path)\n"
    assert in_fresh_process(program + "print(json.dumps(sorted({'jax', 'keras'} & set(sys.modules))))") is not None


def test_functions_are_pickled_by_where_they_are_defined() -> None:
    for function in (tf.math.log, tf.keras.backend.dot, tf.compat.v1.space_to_batch):
        assert pickle.loads(pickle.dumps(function)) is function


def test_modules_without_a_file_are_reloaded() -> None:
    module = importlib.import_module("stratagem.tf.keras.losses")
    assert importlib.reload(module) is module
    assert module.Reduction.SUM == "sum"


@pytest.mark.parametrize(
    "home",
    [
        "stratagem.tf.keras.layers.synchronized:SyncBatchNormalization",
        "stratagem.tf.tensors.arranging:reshape",
        "stratagem.tf.tensors.elementwise:log",
        "stratagem.tf.tensors.neural:elu",
        "stratagem.tf.tensors.pictures:resize",
        "stratagem.tf.tensors.reductions:reduce_sum",
    ],
)
def test_saved_models_name_homes_that_stay(home: str) -> None:
    module, _, name = home.partition(":")
    found = getattr(importlib.import_module(module), name)
    assert (found.__module__, found.__qualname__) == (module, name)


def test_a_folder_of_files_for_type_checkers_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "optimizers").mkdir()
    (tmp_path / "optimizers" / "__init__.pyi").touch()
    spec = Modules().find_spec("stratagem.tf.keras.optimizers", [str(tmp_path)])
    assert spec is not None
    assert (spec.loader is not None, spec.submodule_search_locations) == (True, [])
    (tmp_path / "optimizers" / "__init__.py").touch()
    importlib.invalidate_caches()
    file = Modules().find_spec("stratagem.tf.keras.optimizers", [str(tmp_path)])
    assert file is not None
    assert file.origin == str(tmp_path / "optimizers" / "__init__.py")
