"""`tf.gradients`: the gradient of what a compiled function has computed so far, without a tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from stratagem.core.errors import InputError, UsageError
from stratagem.loop.recorded import Recorded
from stratagem.loop.retraced import Retraced
from stratagem.loop.tape import NONE, GradientTape
from stratagem.mesh.mesh import Tree
from stratagem.program.tracing import current_tracing


class _WholeTape(GradientTape):
    """A tape that holds everything since the function began, whenever it is made."""

    def _new_record(self) -> Recorded | Retraced:
        tracing = current_tracing()
        if tracing is None:
            raise UsageError(
                "tf.gradients was called outside functions that are compiled.",
                "Outside them, operations run at once and are not recorded, except by a tape.",
                "Write `with tf.GradientTape() as tape:` around the computation, then tape.gradient(ys, xs); or "
                "decorate the function with tf.function.",
            )
        return Retraced(tracing, watches_variables=False, whole=True)


def gradients(
    ys: Tree,
    xs: Tree,
    grad_ys: Tree | None = None,
    name: str = "gradients",
    gate_gradients: bool = False,
    aggregation_method: Any = None,
    stop_gradients: Tree | None = None,
    unconnected_gradients: str = NONE,
) -> list[Any]:
    """Return the gradients of tensors by tensors that they were computed from (`tf.gradients`).

    In functions given to `stratagem.function` or `strategy.run`. It differentiates by tensors, not by variables, which
    it cannot have watched from the start.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/gradients

    Args:
        ys: A tensor, or several; their gradients are added up.
        xs: A tensor, or several.
        grad_ys: Weights of `ys`, of their shapes; ones when None.
        name: Accepted as in TensorFlow, without effect, as the next two are.
        gate_gradients: See `name`.
        aggregation_method: See `name`.
        stop_gradients: None.
        unconnected_gradients: What to return for one of `xs` that `ys` do not depend on: "none" or "zero".

    Returns:
        One gradient for each of `xs`.

    Raises:
        UsageError: Called outside compiled functions.
        InputError: One of `xs` is a variable, or `stop_gradients` is given.

    Example:
        >>> import stratagem
        >>> @stratagem.function
        ... def slope(x):
        ...     return gradients(x * x, x)[0]
        >>> float(slope(3.0))
        6.0
    """
    tape = _WholeTape(watch_accessed_variables=False)
    sources: Sequence[Any] = keras.tree.flatten(xs)
    if any(isinstance(source, keras.Variable) for source in sources):
        raise InputError(
            "tf.gradients was given a variable to differentiate by.",
            "No tape watched the variable while the function was computed.",
            "Write `with tf.GradientTape() as tape:` around the computation, then tape.gradient(ys, variables).",
        )
    if stop_gradients is not None:
        raise InputError(
            "tf.gradients was given stop_gradients.",
            "The whole gradient would be returned.",
            "Write tf.stop_gradient(x) where x is used.",
        )
    tape.watch(sources)
    return tape.gradient(ys, list(sources), grad_ys, unconnected_gradients)
