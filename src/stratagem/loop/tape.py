"""`GradientTape`: gradients of what is computed in its context."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras

from stratagem.core.errors import InputError, UsageError
from stratagem.loop import added_losses
from stratagem.loop.loss import as_counted
from stratagem.loop.recorded import Recorded
from stratagem.loop.retraced import Retraced
from stratagem.mesh.mesh import Tree
from stratagem.program.compat import innermost_scope, trace_state
from stratagem.program.tracing import current_tracing
from stratagem.replica.context import current_replica_context

NONE: Final = "none"
ZERO: Final = "zero"


class UnconnectedGradients:
    """Gradients with respect to sources that the target does not depend on (`tf.UnconnectedGradients`)."""

    NONE = NONE
    ZERO = ZERO


class GradientTape:
    """Record operations for differentiation (`tf.GradientTape`).

    The tape works inside functions given to `strategy.run` or `stratagem.function`, which are compiled. Outside them
    each operation runs at once. Use that for debugging and small models: a compiled step takes about a tenth of the
    time.

    A compiled function must do the same each time it is traced, because `gradient` traces it again up to the call. So
    it must not use unseeded Python randomness, or counters that decide what it computes. Outside compiled functions,
    `watch` accepts JAX arrays, but not NumPy arrays. Loops of unknown length (`keras.ops.while_loop`) cannot be
    differentiated.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/GradientTape

    Args:
        persistent: Whether `gradient` may be called more than once.
        watch_accessed_variables: Whether to watch trainable variables automatically when they are read.

    Example:
        >>> import keras, stratagem
        >>> w = keras.Variable(3.0)
        >>> def slope():
        ...     with stratagem.GradientTape() as tape:
        ...         loss = w * w
        ...     return tape.gradient(loss, w)
        >>> float(slope()), float(stratagem.OneDeviceStrategy("cpu:0").run(slope))
        (6.0, 6.0)
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        added_losses.install()
        self._watches_variables = watch_accessed_variables
        self._record = self._new_record()
        self._persistent = persistent
        self._used_in: Any = None

    def _new_record(self) -> Recorded | Retraced:
        # A function can be traced again up to a call of `gradient`; not up to the midst of a branch or loop of it.
        tracing = current_tracing()
        if tracing is None or tracing.is_in_part():
            return Recorded(self._watches_variables)
        return Retraced(tracing, self._watches_variables)

    def __enter__(self) -> GradientTape:
        self._record.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._record.recording:
            self._record.end()

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Do not record the operations in this context.

        Raises:
            UsageError: The tape is not recording.
        """
        if not self._record.recording:
            raise UsageError(
                "stop_recording was called outside the tape's context, where nothing is recorded.",
                "Call it inside `with GradientTape() as tape:`, or leave it out.",
            )
        self._record.end()
        try:
            yield
        finally:
            self._record.begin()

    def reset(self) -> None:
        """Forget everything that was recorded and watched, as if the tape's context began here."""
        recording = self._record.recording
        if recording:
            self._record.end()
        self._record.release()
        self._record, self._used_in = self._new_record(), None
        if recording:
            self._record.begin()

    def watch(self, tensor: Tree) -> None:
        """Watch a tensor, to compute gradients with respect to it later.

        Args:
            tensor: A structure of tensors or variables. A tensor is watched from this call on, inside the tape.

        Raises:
            InputError: The tensor is a NumPy array, outside compiled functions.
        """
        for leaf in keras.tree.flatten(tensor):
            self._record.watch(leaf)

    def watched_variables(self) -> tuple[Any, ...]:
        """Return the variables read so far that the tape watches."""
        return self._record.watched_variables()

    def gradient(
        self,
        target: Tree,
        sources: Tree,
        output_gradients: Tree | None = None,
        unconnected_gradients: str = NONE,
    ) -> Tree:
        """Return the gradient of a target with respect to sources.

        Args:
            target: A tensor or a structure of tensors; gradients of several targets are added. A target that is not a
                scalar counts as its sum. In a `train_step` under `fit`, a target with a number for each row counts as
                the sum over the rows of all replicas where gradients of variables are asked for.
            sources: A structure of variables, watched tensors, and tensors that were computed from these inside
                the tape.
            output_gradients: Weights of the targets, with their shapes; None means ones.
            unconnected_gradients: "none" or "zero": the result for a source that no target depends on.

        Returns:
            A structure like `sources`.

        Raises:
            UsageError: The tape is not persistent, and was used before.
            InputError: A target is not a floating-point tensor.
        """
        targets = [_checked(leaf) for leaf in keras.tree.flatten(target)]
        weights = (
            [jnp.full_like(leaf, _counted(leaf, sources)) for leaf in targets]
            if output_gradients is None
            else [
                jnp.broadcast_to(jnp.asarray(weight, leaf.dtype), leaf.shape)
                for weight, leaf in zip(keras.tree.flatten(output_gradients), targets, strict=True)
            ]
        )
        return self._found(targets, sources, weights, unconnected_gradients)

    def jacobian(self, target: Any, sources: Tree, unconnected_gradients: str = NONE, **parallel: Any) -> Tree:
        """Return the derivatives of each element of a target with respect to sources.

        Args:
            target: A tensor.
            sources: As for `gradient`.
            unconnected_gradients: "none" or "zero": the result for a source that the target does not depend on.
            parallel: TensorFlow's `parallel_iterations`, `experimental_use_pfor`: no effect.

        Returns:
            A structure like `sources`. Each shape is the shape of the target, followed by that of the source.

        Raises:
            UsageError: The tape is not persistent, and was used before.
            InputError: The target is not a floating-point tensor.

        Example:
            >>> import keras, stratagem
            >>> w = keras.Variable([1.0, 2.0])
            >>> with stratagem.GradientTape() as tape:
            ...     squares = w * w
            >>> tape.jacobian(squares, w).tolist()
            [[2.0, 0.0], [0.0, 4.0]]
        """
        target = _checked(target)
        weights = jnp.eye(target.size, dtype=target.dtype).reshape(target.size, *target.shape)
        return self._found([target], sources, [weights], unconnected_gradients, target.shape)

    def batch_jacobian(self, target: Any, source: Any, unconnected_gradients: str = NONE, **parallel: Any) -> Any:
        """Return the derivatives of each row of a target with respect to the same row of a source.

        Args:
            target: A tensor whose rows each depend on one row of the source.
            source: A tensor with as many rows, watched or computed inside the tape.
            unconnected_gradients: "none" or "zero": the result if the target does not depend on the source.
            parallel: TensorFlow's `parallel_iterations`, `experimental_use_pfor`: no effect.

        Returns:
            A tensor of shape (rows, the shape of a target's row, the shape of a source's row).

        Raises:
            UsageError: The tape is not persistent, and was used before.
            InputError: The target is not a floating-point tensor, or has another number of rows than the source.
        """
        target = _checked(target)
        if not target.ndim or not source.ndim or target.shape[0] != source.shape[0]:
            raise InputError(
                f"batch_jacobian was given a target of shape {target.shape} and a source of shape {source.shape}.",
                "Each row of the target belongs to one row of the source, so both must have the same number of rows.",
                "Give tensors of the same batch, or write tape.jacobian(target, source).",
            )
        rows, row = target.shape[0], target.shape[1:]
        size = math.prod(row)
        weights = jnp.eye(size, dtype=target.dtype).reshape(size, 1, *row)
        weights = jnp.broadcast_to(weights, (size, rows, *row))
        found = self._found([target], source, [weights], unconnected_gradients, (size,))
        return None if found is None else jnp.moveaxis(found, 0, 1).reshape(rows, *row, *source.shape[1:])

    def _found(
        self,
        targets: Sequence[Any],
        sources: Tree,
        weights: Sequence[Any],
        unconnected: str,
        outer: Sequence[int] | None = None,
    ) -> Tree:
        """Return gradients of weighted targets; with `outer`, for each along one more axis of the weights, which gets
        that shape.
        """
        # JAX traces a branch more than once, and all branches of a condition: each may ask once.
        now = (trace_state(), innermost_scope()) if isinstance(self._record, Retraced) else True
        if self._used_in == now and not self._persistent:
            raise UsageError(
                "gradient was called twice on a tape that is not persistent.",
                "Write GradientTape(persistent=True), or ask for all gradients in one call.",
            )
        self._used_in = now
        flat = keras.tree.flatten(sources)
        weights = [_conjugated(weight) for weight in weights]
        found = self._record.gradients(targets, flat, weights, several=outer is not None)
        found = jax.tree.map(_conjugated, found)  # one that is None stays so
        if outer is not None:
            found = jax.tree.map(lambda gradient: gradient.reshape(*outer, *gradient.shape[1:]), found)
        if str(unconnected).lower() == ZERO:
            found = [
                jnp.zeros((*(outer or ()), *leaf.shape), leaf.dtype) if gradient is None else gradient
                for gradient, leaf in zip(found, flat, strict=True)
            ]
        if not self._persistent:
            self._record.release()
        return keras.tree.pack_sequence_as(sources, found) if keras.tree.is_nested(sources) else found[0]


def _counted(target: Any, sources: Tree) -> float:
    """Return the factor of a target. In `fit`, optimizers take the mean of the replicas' gradients by rows.

    A number for each row stands for their sum; that of the global batch is what one device computes.
    """
    context = current_replica_context()
    if context is None or target.shape[:1] != (context.share.rows,):
        return 1.0
    of_variables = all(isinstance(each, keras.Variable) for each in keras.tree.flatten(sources))
    return as_counted(context) if of_variables else 1.0


def _conjugated(gradient: Any) -> Any:
    """Return a gradient as TensorFlow writes it: of complex numbers the conjugate of what JAX does."""
    return jnp.conj(gradient) if jnp.issubdtype(gradient.dtype, jnp.complexfloating) else gradient


def _checked(target: Any) -> Any:
    array = target.value if isinstance(target, keras.Variable) else target
    array = array if isinstance(array, jax.Array) else jnp.asarray(array)  # the very array: the record is its own
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise InputError(
            f"A target of tape.gradient has dtype {array.dtype}.",
            "Integers have no gradient.",
            "Give the loss as a floating-point tensor: keras.ops.cast(loss, 'float32').",
        )
    return array
