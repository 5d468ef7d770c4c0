"""Optimizers by their old names, with the formulas and defaults of `tf.compat.v1.train`.

Each is a Keras optimizer. A learning rate may also be a tensor that the model function computes, say from the global
step.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/train
"""

from __future__ import annotations

from typing import Any

import keras

from stratagem.core.errors import InputError
from stratagem.estimator import updates
from stratagem.estimator.running_call import current_call, running_call
from stratagem.estimator.updates import Pairs, TrainOp, is_rate_of_step


class _OldOptimizer(keras.optimizers.Optimizer):
    """What the old names share: they return a `train_op`, and take tensors as learning rate."""

    def minimize(self, loss: Any, global_step: Any = None, var_list: Any = None, **options: Any) -> TrainOp:
        """Return the operation that makes a loss smaller (`tf.compat.v1.train.Optimizer.minimize`).

        Args:
            loss: A scalar that the model_fn has computed.
            global_step: Accepted as in TensorFlow: every step is counted.
            var_list: The variables to change; None for all trainable ones that have been used.
            options: As for the method that Keras's optimizers get, `stratagem.estimator.updates.minimize`.
        """
        current_call("optimizer.minimize")
        return updates.minimize(self, loss, var_list, global_step=global_step, **options)

    def apply_gradients(self, grads_and_vars: Pairs, global_step: Any = None, name: str | None = None) -> Any:
        """Return the operation that applies gradients (`tf.compat.v1.train.Optimizer.apply_gradients`).

        Outside a model_fn it applies them at once, as TensorFlow does in functions and where operations run at once.

        Args:
            grads_and_vars: Pairs of a gradient and its variable; those without a gradient are left out.
            global_step: In a model_fn every step is counted; outside this variable counts it.
            name: Accepted as in TensorFlow.
        """
        pairs = [pair for pair in grads_and_vars if pair[0] is not None]

        def update() -> None:
            updates.take_rate(self)
            keras.optimizers.Optimizer.apply_gradients(self, pairs)

        if running_call() is not None:
            return TrainOp(update)
        update()
        return None if global_step is None else global_step.assign_add(1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
        return dict(self._arguments)

    def _began_with(self, learning_rate: Any, **arguments: Any) -> None:
        rate = 0.0 if is_rate_of_step(learning_rate) else learning_rate
        self._arguments = {"learning_rate": rate, "name": self.name, **arguments}


def _rate(learning_rate: Any) -> Any:
    """Return what Keras takes as a learning rate."""
    if is_rate_of_step(learning_rate) or callable(learning_rate):
        return learning_rate
    try:
        return float(learning_rate)
    except (TypeError, ValueError):
        raise InputError(
            f"learning_rate is {learning_rate!r}.",
            "Write a number, a tensor or variable, or a schedule of keras.optimizers.schedules.",
        ) from None


class GradientDescentOptimizer(_OldOptimizer, keras.optimizers.SGD):
    """Gradient descent (`tf.compat.v1.train.GradientDescentOptimizer`).

    Args:
        learning_rate: A number, a tensor, or a schedule.
        use_locking: Accepted as in TensorFlow.
        name: Prefix of the names of its variables.
    """

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(_rate(learning_rate), name=name)
        self._began_with(learning_rate)


class MomentumOptimizer(_OldOptimizer):
    """Gradient descent with momentum (`tf.compat.v1.train.MomentumOptimizer`).

    The learning rate scales the sum of gradients. Keras's SGD scales the gradients before they are summed, which gives
    other steps if the learning rate changes.

    Args:
        learning_rate: A number, a tensor, or a schedule.
        momentum: Fraction of the sum that is kept.
        use_locking: Accepted as in TensorFlow.
        name: Prefix of the names of its variables.
        use_nesterov: Whether to look one step ahead.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(_rate(learning_rate), name=name)
        self._began_with(learning_rate, momentum=momentum, use_nesterov=use_nesterov)
        self._momentum = momentum
        self._nesterov = use_nesterov
        self._sums: Any = []

    def build(self, variables: list[Any]) -> None:
        if not self.built:
            super().build(variables)
            self._sums = self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        rate = keras.ops.cast(learning_rate, variable.dtype)
        slot = self._sums[self._get_variable_index(variable)]
        total = self._momentum * slot.value + keras.ops.cast(gradient, variable.dtype)
        self.assign(slot, total)
        step = gradient + self._momentum * total if self._nesterov else total
        self.assign_sub(variable, rate * step)


class AdamOptimizer(_OldOptimizer, keras.optimizers.Adam):
    """Adam (`tf.compat.v1.train.AdamOptimizer`).

    Args:
        learning_rate: A number, a tensor, or a schedule.
        beta1: Decay of the mean.
        beta2: Decay of the variance.
        epsilon: Added to the square root of the variance.
        use_locking: Accepted as in TensorFlow.
        name: Prefix of the names of its variables.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(_rate(learning_rate), beta_1=beta1, beta_2=beta2, epsilon=epsilon, name=name)
        self._began_with(learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)


class AdagradOptimizer(_OldOptimizer, keras.optimizers.Adagrad):
    """Adagrad (`tf.compat.v1.train.AdagradOptimizer`).

    Args:
        learning_rate: A number, a tensor, or a schedule.
        initial_accumulator_value: Initial value of the sums of squares.
        use_locking: Accepted as in TensorFlow.
        name: Prefix of the names of its variables.
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        super().__init__(_rate(learning_rate), initial_accumulator_value, epsilon=0.0, name=name)
        self._began_with(learning_rate, initial_accumulator_value=initial_accumulator_value)


class RMSPropOptimizer(_OldOptimizer, keras.optimizers.RMSprop):
    """RMSProp, whose mean of squares starts at one (`tf.compat.v1.train.RMSPropOptimizer`).

    Args:
        learning_rate: A number, a tensor, or a schedule.
        decay: Decay of the mean of squares.
        momentum: Fraction of the last step that is kept.
        epsilon: Added to the mean of squares.
        use_locking: Accepted as in TensorFlow.
        centered: Whether to use the variance in place of the mean of squares.
        name: Prefix of the names of its variables.
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(_rate(learning_rate), decay, momentum, epsilon, centered, name=name)
        self._began_with(learning_rate, decay=decay, momentum=momentum, epsilon=epsilon, centered=centered)

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer: str = "zeros"
    ) -> Any:
        return super().add_variable_from_reference(
            reference_variable, name, initializer="ones" if name == "velocity" else initializer
        )


class FtrlOptimizer(_OldOptimizer, keras.optimizers.Ftrl):
    """FTRL-Proximal (`tf.compat.v1.train.FtrlOptimizer`).

    Args:
        learning_rate: A number, a tensor, or a schedule.
        learning_rate_power: Exponent of the decay of the learning rate, 0 or less.
        initial_accumulator_value: Initial value of the sums of squares.
        l1_regularization_strength: 0 or more.
        l2_regularization_strength: 0 or more.
        use_locking: Accepted as in TensorFlow.
        name: Prefix of the names of its variables.
        l2_shrinkage_regularization_strength: 0 or more.
    """

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None:
        super().__init__(
            _rate(learning_rate),
            learning_rate_power,
            initial_accumulator_value,
            l1_regularization_strength,
            l2_regularization_strength,
            l2_shrinkage_regularization_strength,
            name=name,
        )
        self._began_with(
            learning_rate,
            learning_rate_power=learning_rate_power,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
        )


class AdadeltaOptimizer(_OldOptimizer, keras.optimizers.Adadelta):
    """Adadelta (`tf.compat.v1.train.AdadeltaOptimizer`).

    Args:
        learning_rate: A number, a tensor, or a schedule.
        rho: Decay of the means of squares.
        epsilon: Added to the means of squares.
        use_locking: Accepted as in TensorFlow.
        name: Prefix of the names of its variables.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(_rate(learning_rate), rho=rho, epsilon=epsilon, name=name)
        self._began_with(learning_rate, rho=rho, epsilon=epsilon)


class ProximalAdagradOptimizer(_OldOptimizer):
    """Adagrad with regularization after each step (`tf.compat.v1.train.ProximalAdagradOptimizer`).

    Args:
        learning_rate: A number, a tensor, or a schedule.
        initial_accumulator_value: Initial value of the sums of squares.
        l1_regularization_strength: 0 or more.
        l2_regularization_strength: 0 or more.
        use_locking: Accepted as in TensorFlow.
        name: Prefix of the names of its variables.
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        super().__init__(_rate(learning_rate), name=name)
        self._l1 = l1_regularization_strength
        self._l2 = l2_regularization_strength
        self._initial = initial_accumulator_value
        self._began_with(
            learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
        )
        self._sums: Any = []

    def build(self, variables: list[Any]) -> None:
        if not self.built:
            super().build(variables)
            start: Any = keras.initializers.Constant(self._initial)
            self._sums = self.add_optimizer_variables(variables, "accumulator", initializer=start)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        gradient = keras.ops.cast(gradient, variable.dtype)
        slot = self._sums[self._get_variable_index(variable)]
        total = slot.value + keras.ops.square(gradient)
        self.assign(slot, total)
        rate: Any = keras.ops.divide(keras.ops.cast(learning_rate, variable.dtype), keras.ops.sqrt(total))
        moved = variable - rate * gradient
        drawn: Any = keras.ops.multiply(
            keras.ops.sign(moved), keras.ops.maximum(keras.ops.abs(moved) - rate * self._l1, 0.0)
        )
        self.assign(variable, drawn / (1.0 + rate * self._l2))


__all__ = [
    "AdadeltaOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "ProximalAdagradOptimizer",
    "RMSPropOptimizer",
]
