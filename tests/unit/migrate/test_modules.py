from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stratagem.migrate.modules import Presence, presence, public_names
from stratagem.migrate.names import is_there


@pytest.mark.parametrize(
    ("module", "path", "expected"),
    [
        ("keras", "layers.Dense", Presence.PRESENT),
        ("keras", "layers.Dense.no_such_thing", Presence.UNKNOWN),
        ("keras", "no_such_thing", Presence.ABSENT),
        ("keras.applications", "resnet50.ResNet50", Presence.PRESENT),
        ("stratagem.tf", "data.Dataset.from_tensor_slices", Presence.PRESENT),
        ("stratagem.tf", "data.Dataset.no_such_thing", Presence.ABSENT),
        ("stratagem.tf", "distribute.ReduceOp.SUM", Presence.PRESENT),
        ("stratagem.tf", "distribute.ReduceOp.NO_SUCH_THING", Presence.ABSENT),
        ("stratagem.tf", "train.Checkpoint.restore", Presence.PRESENT),
        ("stratagem.tf", "GradientTape", Presence.PRESENT),
        ("no_such_package", "name", Presence.UNKNOWN),
    ],
)
def test_presence_of_names(module: str, path: str, expected: Presence) -> None:
    assert presence(module, path.split(".")) is expected


@pytest.mark.parametrize("module", ["keras.layers", "keras.optimizers.schedules", "stratagem.data", "stratagem.train"])
def test_files_and_modules_have_the_same_names(module: str) -> None:
    exported = getattr(importlib.import_module(module), "__all__", None)
    names = exported or [name for name in dir(importlib.import_module(module)) if not name.startswith("_")]
    assert set(names) - public_names(module) == set()
    for name in names:
        assert presence(module, [name]) is Presence.PRESENT


def test_all_names_of_tensorflow_are_found_as_python_finds_them() -> None:
    lines = (Path(__file__).parents[1] / "tf" / "tensorflow_names.txt").read_text().splitlines()
    wrong, there = [], 0
    for module, names in (line.split(":") for line in lines):
        try:
            real = importlib.import_module(f"stratagem.{module}")
        except ImportError:
            real = None
        for name in names.split():
            found = is_there(f"{module}.{name}")
            there += found is Presence.PRESENT
            # To ask for a name that is not there takes long: its error looks for one to write instead.
            is_real = name in dir(real) or (found is not Presence.ABSENT and hasattr(real, name))
            if found is not (Presence.PRESENT if is_real else Presence.ABSENT):
                wrong.append((module, name, found))
    assert wrong == []
    assert there > 1000


def test_neither_jax_nor_keras_is_loaded() -> None:
    program = (
        "import json, sys\n"
        "from stratagem.migrate.program import migrate\n"
        "migrate('import tensorflow as tf; tf.keras.layers.Dense; tf.data.Dataset.map; tf.lite')\n"
        "print(json.dumps(sorted({'jax', 'keras', 'numpy', 'tensorflow'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stderr, json.loads(done.stdout)) == ("", [])
