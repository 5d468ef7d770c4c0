"""Export a trained model as a program that JAX runs without Stratagem.

One file holds the compiled prediction with its weights, for a batch of any size; it is loaded with
`jax.export.deserialize(Path(file).read_bytes()).call(features)`. See https://docs.jax.dev/en/latest/export/export.html.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from jax import export as jax_export

from stratagem.core import optional
from stratagem.core.errors import InputError
from stratagem.core.files import draft_of
from stratagem.data.specs import TensorSpec
from stratagem.estimator.checks import check_callable
from stratagem.estimator.programs.model_function import Program
from stratagem.estimator.text import Names, is_text
from stratagem.loop.exporting import PLATFORMS
from stratagem.mesh.mesh import Tree

PROGRAM: Final = "predict.jax_export"
"""The file that holds the program."""

SIGNATURE: Final = "signature.json"
"""The file that describes, for people, the input and output of the program."""


@dataclass(frozen=True)
class ServingInputReceiver:
    """The input of an exported model (`tf.estimator.export.ServingInputReceiver`).

    Args:
        features: A structure of `TensorSpec`, whose first size is None, or of arrays with the shapes.
        receiver_tensors: Accepted as in TensorFlow.
        receiver_tensors_alternatives: Accepted as in TensorFlow.
    """

    features: Tree
    receiver_tensors: Any = None
    receiver_tensors_alternatives: Any = None


class TensorServingInputReceiver(ServingInputReceiver):
    """The input of an exported model that takes one tensor (`tf.estimator.export.TensorServingInputReceiver`)."""


class ExportOutput:
    """An entry of `EstimatorSpec.export_outputs` (`tf.estimator.export.ExportOutput`).

    Programs may create them, but only the predictions are exported.

    Args:
        outputs: One tensor, or tensors by name.
        options: Other tensors by name, such as `scores` and `classes`.
    """

    def __init__(self, outputs: Any = None, **options: Any) -> None:
        self.outputs = outputs
        self.options = options


class PredictOutput(ExportOutput):
    """Predictions of any kind (`tf.estimator.export.PredictOutput`)."""


class ClassificationOutput(ExportOutput):
    """Scores of classes (`tf.estimator.export.ClassificationOutput`)."""


class RegressionOutput(ExportOutput):
    """Numbers (`tf.estimator.export.RegressionOutput`)."""


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a function that describes the inputs of an exported model (`tf.estimator.export`).

    In TensorFlow such a model takes serialized examples. Here it takes the arrays that `stratagem.io.parse_example`
    makes of them.

    Args:
        feature_spec: The kind of each feature by key, such as `FixedLenFeature`.
        default_batch_size: Accepted as in TensorFlow; the batch may have any size.

    Example:
        >>> from stratagem.io import FixedLenFeature
        >>> receiver = build_parsing_serving_input_receiver_fn({"age": FixedLenFeature((1,), "float32")})()
        >>> receiver.features["age"].shape
        (None, 1)
    """
    specs = {
        key: TensorSpec((None, *getattr(spec, "shape", (None,))), getattr(spec.dtype, "name", spec.dtype))
        for key, spec in feature_spec.items()
    }
    return lambda: ServingInputReceiver(specs)


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a function that describes the inputs of an exported model (`tf.estimator.export`).

    Args:
        features: Arrays or `TensorSpec` by name.
        default_batch_size: Accepted as in TensorFlow; the batch may have any size.

    Example:
        >>> receiver = build_raw_serving_input_receiver_fn({"x": np.zeros((1, 3), "float32")})()
        >>> receiver.features["x"].shape
        (1, 3)
    """
    return lambda: ServingInputReceiver(dict(features))


def shapes_of(receiver_fn: Callable[[], Any]) -> Tree:
    """Return the features that a serving function describes, as zeros for a batch of one.

    Args:
        receiver_fn: Returns a `ServingInputReceiver`, or the features.

    Raises:
        InputError: It is not a function.
    """
    remedy = "Write lambda: ServingInputReceiver({'x': TensorSpec((None, 28, 28, 1), 'float32')})."
    check_callable("export_saved_model was given serving_input_receiver_fn", receiver_fn, remedy)
    received = receiver_fn()
    features = received.features if isinstance(received, ServingInputReceiver) else received

    def zeros(leaf: Any) -> np.ndarray:
        spec = TensorSpec.of(leaf)
        if is_text(spec.dtype):
            raise InputError(
                f"export_saved_model was given features with text among them, {spec}.",
                "The exported program is a program of JAX, which takes only numbers.",
                "Convert the words to numbers in input_fn, and use columns of numbers; or serve with predict().",
            )
        sizes: Any = (spec.shape or ())[1:]
        return np.zeros((1, *sizes), spec.dtype)

    return jax.tree.map(zeros, features, is_leaf=lambda leaf: isinstance(leaf, TensorSpec))


def write_program(program: Program, features: Tree, base: str) -> str:
    """Write a prediction program into a new folder.

    Args:
        program: For prediction, prepared, its variables restored.
        features: Features of a batch of one.
        base: The folder that holds exports.

    Returns:
        The new folder, named by the time as in TensorFlow.

    Raises:
        InputError: The program works for one size of batch only, or what JAX writes programs with is not installed.
    """
    optional.load("flatbuffers", "export", "export_saved_model")
    predict = jax.jit(_with_numbers(program.predictor()))
    (rows,) = jax_export.symbolic_shape("rows")
    specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), features)
    try:
        exported = jax_export.export(predict, platforms=PLATFORMS)(specs)
    except Exception as error:
        raise InputError(
            f"The model cannot be exported for a batch of any size: {type(error).__name__}: {error}",
            "Use shapes that follow from features.shape in model_fn: reshape(x, (-1, n)), not the number of rows.",
        ) from error
    folder = _new_folder(base)
    for name, data in ((PROGRAM, exported.serialize()), (SIGNATURE, _signature(exported).encode())):
        with draft_of(Path(folder, name)) as draft:
            draft.write_bytes(data)
    return folder


def _with_numbers(predict: Callable[[Tree], Tree]) -> Callable[[Tree], Tree]:
    """Return a function that predicts the numbers of classes in place of their names."""

    def number(leaf: Any) -> Any:
        return leaf.numbers if isinstance(leaf, Names) else leaf

    return lambda features: jax.tree.map(number, predict(features), is_leaf=lambda leaf: isinstance(leaf, Names))


def _signature(exported: Any) -> str:
    def said(tree: Any, values: Any) -> Any:
        return jax.tree.map(lambda leaf: f"{leaf.dtype}{list(map(str, leaf.shape))}", tree.unflatten(values))

    (args, _) = said(exported.in_tree, exported.in_avals)
    return json.dumps({"features": args[0], "predictions": said(exported.out_tree, exported.out_avals)}, indent=1)


def _new_folder(base: str) -> str:
    """Make a folder named by the seconds since 1970, or the next number that is free."""
    number = int(time.time())
    while True:
        folder = os.path.join(base, str(number))
        try:
            os.makedirs(folder)
            return folder
        except FileExistsError:
            number += 1
