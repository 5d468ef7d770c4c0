"""Tables of names: what a line means, and that every home is there."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
from pathlib import Path

import pytest

import stratagem.tf as tf
from stratagem.tf import names
from stratagem.tf.names import TABLES, has_table, names_of

STUBS = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "type_stubs.py"))


@pytest.mark.parametrize(
    ("module", "name", "home"),
    [
        ("stratagem.tf", "abs", "stratagem.tf.tensors.elementwise:abs"),
        ("stratagem.tf", "math", "stratagem.tf.math"),
        ("stratagem.tf", "version", "stratagem.tf.version"),
        ("stratagem.tf", "losses", "stratagem.tf.keras.losses"),
        ("stratagem.tf.compat.v2", "enable_v2_behavior", "stratagem.tf.compat.v1.switches:enable_v2_behavior"),
        ("stratagem.tf.python.client", "device_lib", "stratagem.tf.python.client.device_lib"),
        ("stratagem.tf.compat.v1", "arg_max", "stratagem.tf:argmax"),
        ("stratagem.tf.compat.v1.gfile", "Open", "stratagem.tf.io.gfile:GFile"),
        ("stratagem.tf.config", "threading", "stratagem.tf.config.threading"),
        ("stratagem.tf.experimental", "numpy", "jax.numpy"),
        ("stratagem.tf.keras.layers", "experimental", "stratagem.tf.keras.layers.experimental"),
        ("stratagem.tf.keras.metrics", "mae", "keras.losses:mean_absolute_error"),
    ],
)
def test_home_of_a_name(module: str, name: str, home: str) -> None:
    assert names_of(module).homes[name] == home


@pytest.mark.parametrize(
    ("module", "behind"),
    [
        ("stratagem.tf", None),
        ("stratagem.tf.compat.v1", "stratagem.tf"),
        ("stratagem.tf.compat.v2", "stratagem.tf"),
        ("stratagem.tf.keras.layers.experimental.preprocessing", "stratagem.tf.keras.layers"),
        ("stratagem.tf.keras.losses", "keras.losses"),
        ("stratagem.tf.keras.ops", "keras.ops"),
        ("stratagem.tf.python.distribute.distribute_lib", "stratagem.tf.distribute"),
    ],
)
def test_module_behind_another(module: str, behind: str | None) -> None:
    assert names_of(module).behind == behind


@pytest.mark.parametrize(
    ("module", "name", "public"),
    [
        ("ops.array_ops", "zeros", tf.zeros),
        ("ops.math_ops", "log", tf.math.log),
        ("framework.ops", "convert_to_tensor", tf.convert_to_tensor),
        ("framework.dtypes", "int32", tf.int32),
        ("distribute.distribute_lib", "get_strategy", tf.distribute.get_strategy),
        ("util.nest", "flatten", tf.nest.flatten),
    ],
)
def test_private_modules_have_the_public_names(module: str, name: str, public: object) -> None:
    """`from tensorflow.python.ops import array_ops` stands in many programs of TensorFlow 2."""
    assert getattr(importlib.import_module(f"stratagem.tf.python.{module}"), name) is public


def test_a_module_without_a_table_has_no_names() -> None:
    assert names_of("stratagem.tf.saved_model") == ({}, None)
    assert not has_table("stratagem.tf.saved_model")
    assert not has_table("keras.layers")


def test_no_name_stands_twice_in_a_table() -> None:
    for path, table in TABLES.items():
        words = [word.partition("=")[0] for text in table.values() for word in text.split()]
        assert len(words) == len(set(words)), path


def test_every_home_is_a_module() -> None:
    modules = {home.partition(":")[0] for path in TABLES for home in names_of(f"{names.ROOT}.{path}").homes.values()}
    assert [module for module in sorted(modules) if importlib.import_module(module) is None] == []


def test_type_checkers_get_a_file_for_each_module_that_has_none(tmp_path: Path) -> None:
    files = {file.relative_to(tmp_path).as_posix(): text for file, text in STUBS["stubs"](tmp_path).items()}
    assert len(files) == len(TABLES) - 1
    assert "keras/optimizers/__init__.pyi" in files
    assert "`stratagem.tf.keras.optimizers.schedules`" in files["keras/optimizers/schedules.pyi"]
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").touch()
    assert len(STUBS["stubs"](tmp_path)) == len(files) - 1
