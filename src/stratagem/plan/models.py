"""Find the gradients that a Keras model exchanges in a step, and the time of its step here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.named import load

_STEPS: Final = 30
_WARM_UP: Final = 3
_SECONDS: Final = 20.0
"""A model with slow steps is measured for no longer, but for three steps."""

_LEAST_STEPS: Final = 3


_REMEDY: Final = "Name a .keras file, or a function that returns a built model, as train.py:make_model."


class Timed(NamedTuple):
    """Measured steps.

    Args:
        seconds: Their median.
        spread: Their standard deviation, as a share of the median.
    """

    seconds: float
    spread: float


def model_of(place: str) -> keras.Model:
    """Return the model of a file, or of a function.

    Args:
        place: A `.keras` file, or `module:function` or `path/to/file.py:function` that returns a model.

    Raises:
        InputError: There is no such model.
    """
    if not place.endswith(".keras"):
        made = load(place, "MODEL", _REMEDY)()
        if isinstance(made, keras.Model) and made.built:
            return made
        found = (
            "a model that is not built"
            if isinstance(made, keras.Model)
            else f"{type(made).__name__}, which is not a model"
        )
    elif Path(place).is_file():
        loaded: Any = keras.saving.load_model(place)
        return loaded
    else:
        found = "no such file"
    raise InputError(f"MODEL {place}: {found}.", "Its gradients could not be counted.", _REMEDY)


def gradient_bytes(model: keras.Model) -> int:
    """Return the bytes of a model's gradients: one value for each of its trainable variables, in their own dtypes."""
    return sum(variable.value.nbytes for variable in model.trainable_variables)


def time_step(model: keras.Model, rows: int, clock: Callable[[], float] = time.perf_counter) -> Timed:
    """Time training steps on random rows, with the model's own optimizer and the mean squared error.

    Args:
        model: A built model; it is trained.
        rows: Rows of a batch.
        clock: The source of time.

    Raises:
        InputError: The shape of its inputs is not known.
    """
    compile_for_random_rows(model)
    x, y = random_batch(model, rows)
    times: list[float] = []
    begin = clock()
    while len(times) < _STEPS + _WARM_UP:
        start = clock()
        model.train_on_batch(x, y)  # waits for its result
        times.append(clock() - start)
        if len(times) >= _LEAST_STEPS + _WARM_UP and clock() - begin > _SECONDS:
            break
    counted = times[_WARM_UP:]
    median = statistics.median(counted)
    return Timed(median, statistics.stdev(counted) / median)


def compile_for_random_rows(model: keras.Model) -> None:
    """Compile a model with its own optimizer, or Adam, and the mean squared error, which labels of any kind suit."""
    if not model.compiled:
        model.compile(optimizer="adam")
    model.compile(optimizer=model.optimizer, loss="mean_squared_error")


def random_batch(model: keras.Model, rows: int) -> tuple[Any, Any]:
    """Return random rows that a model takes, and zeros like its outputs.

    Args:
        model: A built model.
        rows: Number of rows.

    Raises:
        InputError: The shape of its inputs is not known.
    """
    generator = np.random.default_rng(0)
    x = keras.tree.map_structure(lambda spec: _random(generator, spec, rows), _inputs(model))
    return x, keras.tree.map_structure(lambda value: np.zeros(value.shape, np.float32), model.predict_on_batch(x))


def _inputs(model: keras.Model) -> Any:
    """Return the inputs as the model takes them: one, or a list."""
    if not model.inputs:
        raise InputError(
            f"The model {model.name} does not describe its inputs.",
            "Stratagem cannot make random rows for it.",
            "Give the time of its step: --step-ms 35. Or build the model from keras.Input.",
        )
    return model.inputs[0] if len(model.inputs) == 1 else list(model.inputs)


def _random(generator: np.random.Generator, spec: Any, rows: int) -> np.ndarray:
    shape = spec.shape[1:]
    if None in shape:
        raise InputError(
            f"The input {spec.name} has the shape {spec.shape}.",
            "Random rows for it could have any length, and their step could take any time.",
            "Give the time of a step: --step-ms 35. Or fix the shape in keras.Input.",
        )
    if keras.backend.is_float_dtype(spec.dtype):
        return generator.standard_normal((rows, *shape), np.float32)
    return generator.integers(0, 2, (rows, *shape), dtype=spec.dtype)  # of any table of two rows or more
