"""The first NaN or infinity of a `fit`: its step, its layer and its rows, whatever computes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.inspection.planted import PLANTED, QUICK, ROWS, Planted

from stratagem.callbacks import Inspect
from stratagem.checkpoint import storage
from stratagem.core.errors import InputError


def trained(planted: Planted, *callbacks: Any, **fit: Any) -> tuple[keras.Model, str]:
    """Train a model until it is stopped; return it, and what was said."""
    keras.utils.set_random_seed(1)
    model = planted.make()
    with pytest.raises(InputError) as raised:
        model.fit(planted.x, planted.y, batch_size=ROWS, shuffle=False, verbose=0, callbacks=list(callbacks), **fit)
    return model, str(raised.value)


def kinds() -> list[Any]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough, id=name) for name in PLANTED]


@pytest.mark.parametrize("name", kinds())
def test_layer_and_rows_are_named(tmp_path: Path, name: str) -> None:
    planted = PLANTED[name]
    model, said = trained(planted, Inspect(every=10, folder=tmp_path))
    assert said.startswith("Step 2 ")
    assert planted.said in said
    found = json.loads((tmp_path / "step-2.json").read_text())
    assert found["step"] == 2
    if not found["inputs"]:
        assert (found["layer"], found["rows"]) == (planted.layer, planted.rows)
    for variable in [*model.variables, *model.optimizer.variables]:
        assert np.isfinite(np.asarray(variable.value, "float64")).all()
    assert int(model.optimizer.iterations) == (name != "mixed precision")  # it passes over its first, infinite ones


def test_what_is_saved_is_the_state_before_the_step_and_its_batch(tmp_path: Path) -> None:
    planted = PLANTED["log"]
    model, said = trained(planted, Inspect(every=10, folder=tmp_path))
    contents = storage.decode(storage.read(str(tmp_path / "step-2")), "step-2")
    np.testing.assert_array_equal(contents.arrays["batch/0"], planted.x[ROWS : 2 * ROWS])
    np.testing.assert_array_equal(contents.arrays["batch/1"], planted.y[ROWS : 2 * ROWS])
    saved = {name: array for name, array in contents.arrays.items() if name.endswith("dense/kernel")}
    (kernel,) = saved.values()
    np.testing.assert_array_equal(kernel, model.layers[-1].kernel.value)
    assert contents.metadata["rows"] == [1, 2]
    assert str(tmp_path / "step-2") in said


def test_stop_names_the_step_and_the_variables() -> None:
    _, said = trained(PLANTED["log"], Inspect(every=10, nonfinite="stop"))
    assert said.startswith("Step 2 produced NaN or infinity. The loss after it is nan. NaN or infinity came into '")
    assert "/kernel'" in said
    assert "layer" not in said.partition("What to do")[0]
