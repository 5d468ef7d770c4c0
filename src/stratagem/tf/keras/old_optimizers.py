"""Arguments and methods of Keras 2 optimizers."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import keras

from stratagem.core.errors import InputError, explain
from stratagem.fit.compat import applied_to, build_further
from stratagem.loop.tape import GradientTape
from stratagem.mesh.mesh import Tree
from stratagem.program.compat import innermost_scope


def minimize(
    optimizer: Any, loss: Any, var_list: Any = None, grad_loss: Any = None, name: Any = None, tape: Any = None
) -> Any:
    """Apply one step that reduces a loss (`tf.keras.optimizers.Optimizer.minimize`).

    In the `model_fn` of an Estimator it returns the operation that does so (`stratagem.estimator.updates.minimize`).

    Args:
        optimizer: The optimizer.
        loss: A tensor that was computed under `tape`; or a function without arguments that computes it.
        var_list: The variables to change, or a function that returns them.
        grad_loss: A weight of the loss.
        name: Accepted as in TensorFlow.
        tape: The tape.

    Raises:
        InputError: `loss` is a tensor, and `tape` is not given.
    """
    if tape is None:
        if not callable(loss):
            raise InputError(
                "minimize was given a tensor but no tape.",
                "It is not known how the tensor was computed, so it has no gradient.",
                "Give the tape it was computed under: minimize(loss, variables, tape=tape).",
            )
        with GradientTape() as tape:
            value = loss()
    else:
        value = loss() if callable(loss) else loss
    variables: Any = var_list() if callable(var_list) else var_list
    gradients: Any = tape.gradient(value, variables, grad_loss)
    return optimizer.apply_gradients(zip(gradients, variables, strict=True))


_UNSCALED: Final = "_stratagem_gradients_are_unscaled"


def _unscaled_gradients(optimizer: Any, grads: Sequence[Any]) -> list[Any]:
    """Return gradients of a scaled loss as they are without the scale.

    `apply_gradients` is given these in Keras 2, and scaled ones in Keras 3: the next one takes them as they are.
    """
    scale = optimizer.scale_loss(1.0)
    object.__setattr__(optimizer, _UNSCALED, True)
    return [None if gradient is None else gradient / keras.ops.cast(scale, gradient.dtype) for gradient in grads]


def _of_scaling(name: str, read: Callable[[Any], Any]) -> property:
    """Return an attribute of optimizers that scale the loss; others do not have it."""

    def attribute(self: Any) -> Any:
        if isinstance(self, keras.optimizers.LossScaleOptimizer):
            return read(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    return property(attribute)


_SLOTS: Final = {"m": "momentum", "v": "velocity", "rms": "velocity", "mg": "average_gradient", "vhat": "velocity_hat"}
"""Names that Keras 2 had for slots."""


def _without_rate(update_step: Callable[..., None]) -> Callable[..., None]:
    """Return an `update_step` of Keras 2 as Keras 3 calls it, with the learning rate, which it finds by itself."""

    @functools.wraps(update_step)
    def update(self: Any, gradient: Any, variable: Any, learning_rate: Any = None) -> None:
        update_step(self, gradient, variable)

    return update


_APPLYING: Final = "_stratagem_applies_by_its_own"


def _by_own_apply_gradients(cls: Any) -> Callable[..., None]:
    """Return `apply` of a class with an `apply_gradients` of its own, which Keras calls in `fit` under TensorFlow.

    On JAX `fit` applies gradients by `stateless_apply`, which calls `apply` with gradients alone, and would pass by
    what the program wrote. The gradients are those of all replicas.

    Args:
        cls: The optimizer's class.
    """
    own = vars(cls).get("apply")

    def apply(self: Any, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        scope = innermost_scope()
        if trainable_variables is not None or scope is None or _APPLYING in self.__dict__:
            # Looked up here: while a step is traced, the base has another.
            applied = super(cls, self).apply if own is None else functools.partial(own, self)
            applied(grads, trainable_variables)
            return
        held = set(scope.state_mapping)
        object.__setattr__(self, _APPLYING, True)
        try:
            self.apply_gradients(list(zip(grads, applied_to(self), strict=True)))
        finally:
            object.__delattr__(self, _APPLYING)
        if scope.state_mapping.keys() - held:
            raise InputError(
                f"{type(self).__name__}.apply_gradients changed a variable that is not one of the optimizer's.",
                "fit carries only optimizer.variables from step to step. The values of other variables would be lost.",
                "Keep it as an attribute of the optimizer: self.sum = tf.Variable(0.0) in build.",
            )

    return apply


class OldOptimizer:
    """A base of Keras's optimizers: arguments and names of Keras 2.

    `lr=` is the learning rate, and `decay=` reduces it: at step t it is `learning_rate / (1 + decay * t)`
    (https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/optimizers/legacy/Optimizer). Keras 3 refuses
    `lr=` and ignores `decay=` with a warning. `clipvalue=` may be given beside `clipnorm=` or
    `global_clipnorm=`, which Keras 3 refuses too: gradients are clipped by value first.

    An optimizer of the program's own may call `super().__init__(name)`, make its rate by `_build_learning_rate`, and
    have an `update_step(gradient, variable)` or `apply_gradients(grads_and_vars)`
    (https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/optimizers/Optimizer).
    """

    learning_rate: Any
    iterations: Any
    variables: Any
    clipvalue: float | None
    clipnorm: float | None
    global_clipnorm: float | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        vars_of_class: Any = cls
        own = vars(cls).get("update_step")
        if own is not None and len(inspect.signature(own).parameters) == len(("self", "gradient", "variable")):
            vars_of_class.update_step = _without_rate(own)
        if "_resource_apply_dense" in vars(cls):
            warnings.warn(
                explain(
                    f"{cls.__name__} has a _resource_apply_dense, which nothing calls.",
                    "It belongs to optimizers before Keras 2.11, and to tf.keras.optimizers.legacy. Without it the "
                    "optimizer behaves like its base class.",
                    "Write update_step(self, gradient, variable, learning_rate).",
                ),
                stacklevel=2,
            )
        if "apply_gradients" in vars(cls):
            vars_of_class.apply = _by_own_apply_gradients(cls)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        *args: Any,
        lr: Any = None,
        decay: float | None = None,
        clipvalue: float | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(learning_rate, str):  # the first argument was the name
            learning_rate, kwargs["name"] = 0.001, learning_rate
        rate = learning_rate if lr is None else lr
        if decay:
            if callable(rate):
                raise InputError(
                    f"{type(self).__name__} was given decay={decay!r} and a learning rate that is a schedule.",
                    "Leave decay out.",
                )
            rate = keras.optimizers.schedules.InverseTimeDecay(rate, decay_steps=1, decay_rate=decay)
        keras_optimizer: Any = super()
        keras_optimizer.__init__(rate, *args, **kwargs)  # Keras refuses to clip in two ways
        self.clipvalue = clipvalue

    def _build_learning_rate(self, learning_rate: Any) -> Any:
        """Take a learning rate, and return what holds it: a variable, or the schedule."""
        self.learning_rate = learning_rate
        optimizer: Any = self
        return optimizer._learning_rate

    def _clip_gradients(self, grads: Sequence[Any]) -> Any:
        keras_optimizer: Any = super()
        value = self.clipvalue
        if value and (self.clipnorm or self.global_clipnorm):
            grads = [None if each is None else keras.ops.clip(each, -value, value) for each in grads]
        return keras_optimizer._clip_gradients(grads)

    def build(self, variables: Sequence[Any]) -> None:
        """Make the slots. For no variables it stays unbuilt, as in Keras 2: models may share it, the first one frozen.

        In many GANs the discriminator is frozen when it first trains; then the combined model trains the generator.
        """
        keras_optimizer: Any = super()
        if variables or isinstance(self, keras.optimizers.LossScaleOptimizer):  # which has made variables of its own
            keras_optimizer.build(variables)

    def stateless_apply(
        self, optimizer_variables: Sequence[Any], grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> Any:
        """Return new values of variables, as Keras does. A model with nothing to train leaves all as it is."""
        keras_optimizer: Any = super()
        if not trainable_variables:
            return trainable_variables, [keras.ops.convert_to_tensor(each) for each in optimizer_variables]
        return keras_optimizer.stateless_apply(optimizer_variables, grads, trainable_variables)

    def minimize(self, *args: Any, **kwargs: Any) -> Any:
        """Apply one step that reduces a loss, or do what an Estimator's `minimize` does in its `model_fn`."""
        of_estimator = getattr(super(), "minimize", None)
        return minimize(self, *args, **kwargs) if of_estimator is None else of_estimator(*args, **kwargs)

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """Return the variable that the optimizer keeps for one of the model's (`Optimizer.get_slot`).

        Args:
            var: A variable of the model.
            slot_name: Keras 3's name or that of Keras 2: "momentum" or "m", "velocity" or "v".

        Raises:
            InputError: There is no slot with this name, or it is not made yet.
        """
        of_variable = f"{var.path.replace('/', '_')}_"
        slots = {each.name[len(of_variable) :]: each for each in self.variables if each.name.startswith(of_variable)}
        name = slot_name if slot_name in slots else _SLOTS.get(slot_name, slot_name)
        if name not in slots:
            raise InputError(
                f"{type(self).__name__} has no slot {slot_name!r} for {var.path!r}. It has: "
                f"{', '.join(slots) or 'none'}.",
                "Name one of these; an optimizer makes them at its first step, or in optimizer.build(variables).",
            )
        return slots[name]

    def get_weights(self) -> list[Any]:
        """Return the values of all variables."""
        return [variable.numpy() for variable in self.variables]

    @property
    def lr(self) -> Any:
        """The learning rate."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.learning_rate = value

    @property
    def weights(self) -> Any:
        """All variables."""
        return self.variables

    get_scaled_loss = _of_scaling("get_scaled_loss", lambda self: self.scale_loss)
    get_unscaled_gradients = _of_scaling(
        "get_unscaled_gradients", lambda self: functools.partial(_unscaled_gradients, self)
    )
    loss_scale = _of_scaling("loss_scale", lambda self: self.scale_loss(1.0))

    def apply_gradients(self, grads_and_vars: Tree, *args: Any, **kwargs: Any) -> Any:
        """Apply gradients. A LossScaleOptimizer divides them by the scale, so unscaled gradients are scaled first.

        The variables may be new ones, as with `tf.keras.optimizers.legacy`: they get slots of zeros.
        The scale is a power of two, so multiplying and dividing by it does not change a number.
        """
        keras_optimizer: Any = super()
        grads_and_vars = list(grads_and_vars)
        if not grads_and_vars:  # nothing to train
            return self.iterations
        if not isinstance(self, keras.optimizers.LossScaleOptimizer):  # it applies the other to all of its variables
            build_further(self, [variable for gradient, variable in grads_and_vars if gradient is not None])
        if self.__dict__.pop(_UNSCALED, False):
            scale = self.loss_scale
            grads_and_vars = [
                (None if gradient is None else gradient * keras.ops.cast(scale, gradient.dtype), variable)
                for gradient, variable in grads_and_vars
            ]
        return keras_optimizer.apply_gradients(grads_and_vars, *args, **kwargs)
