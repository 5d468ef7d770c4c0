"""Checkpoints of a model_dir: values by name, warm starts, and folders of others."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from stratagem.core.errors import CheckpointError, InputError, UsageError
from stratagem.estimator import WarmStartSettings
from stratagem.estimator.programs.checkpoints import ModelCheckpoints, restore, values_in, warm_start


def variables(first: float) -> dict[str, keras.Variable]:
    return {
        "global_step": keras.Variable(7, dtype="int32", trainable=False),
        "net/kernel": keras.Variable([first, first + 1.0]),
        "net/bias": keras.Variable([first * 10.0]),
    }


def test_values_travel_by_name(tmp_path: Path) -> None:
    path = ModelCheckpoints(variables(1.0), str(tmp_path)).save()
    assert path == str(tmp_path / "model.ckpt-7")
    assert {name: value.tolist() for name, value in values_in(path).items()} == {
        "global_step": 7,
        "net/kernel": [1.0, 2.0],
        "net/bias": [10.0],
    }
    later = variables(3.0)
    assert restore(later, path) == path
    assert np.asarray(later["net/kernel"].value).tolist() == [1.0, 2.0]
    assert restore(later, None) is None
    with pytest.raises(InputError, match=r"model.ckpt-7' is not one of this model"):
        restore({"global_step": later["global_step"], "net/kernel": keras.Variable([1.0])}, path)


def test_warm_starts_take_what_the_pattern_finds(tmp_path: Path) -> None:
    ModelCheckpoints(variables(1.0), str(tmp_path)).save()
    later = variables(3.0)
    settings = WarmStartSettings(str(tmp_path), ["kernel"], {"net/kernel": "net/kernel"})
    assert warm_start(later, settings) == ["net/kernel"]
    assert [np.asarray(value.value).tolist() for value in later.values()] == [7, [1.0, 2.0], [30.0]]
    assert warm_start(later, str(tmp_path)) == ["net/kernel", "net/bias"]
    with pytest.raises(InputError, match=r"net/bias has shape \(1,\), and .* has no such variable"):
        warm_start(later, WarmStartSettings(str(tmp_path), "bias", {"net/bias": "out/bias"}))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="a folder without a checkpoint"):
        warm_start(later, str(tmp_path / "empty"))


def test_a_folder_that_another_run_saves_into(tmp_path: Path) -> None:
    own = ModelCheckpoints(variables(1.0), str(tmp_path))
    other = variables(2.0)
    other["global_step"].assign(8)
    ModelCheckpoints(other, str(tmp_path)).save()
    with pytest.raises(UsageError, match=r"checkpoints that this run did not save: .*model.ckpt-8"):
        own.save()
