"""Moving averages of variables (`tf.train.ExponentialMovingAverage`).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/train/ExponentialMovingAverage
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from stratagem.core.errors import InputError
from stratagem.program.compat import stored_value
from stratagem.program.tracing import is_traced
from stratagem.tf.eager.variables import Reference
from stratagem.tf.tensors.operation import tensor
from stratagem.tf.tensors.variables import Variable, VariableAggregation


class ExponentialMovingAverage:
    """Averages of variables in which recent values count more (`tf.train.ExponentialMovingAverage`).

    Args:
        decay: The part of the average that remains at an update, from 0 to 1.
        num_updates: The number of updates so far. It makes the first updates count more: the decay is then at most
            `(1 + num_updates) / (10 + num_updates)`.
        zero_debias: No effect: averages of variables begin at the variables' values.
        name: The end of the averages' names.

    Example:
        >>> import stratagem.tf as tf
        >>> weight = tf.Variable([1.0])
        >>> ema = tf.train.ExponentialMovingAverage(0.75)
        >>> ema.apply([weight])
        >>> _ = weight.assign([5.0])
        >>> ema.apply([weight])
        >>> ema.average(weight).numpy().tolist()
        [2.0]
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay = decay
        self._num_updates = num_updates
        self._name = name
        self._averages: dict[Reference, Any] = {}

    @property
    def name(self) -> str:
        """The end of the averages' names."""
        return self._name

    def apply(self, var_list: Iterable[Any] | None = None) -> None:
        """Move the average of each variable towards its value. The first call makes the averages.

        In `strategy.run` the value is the mean over the replicas.

        Args:
            var_list: Variables of floating dtypes.

        Raises:
            InputError: The argument is not a list of such variables.
        """
        variables = None if var_list is None else list(var_list)
        wrong = [each for each in variables or () if not _is_averaged(each)]
        if variables is None or wrong:
            raise InputError(
                f"ExponentialMovingAverage.apply was given {wrong[0] if wrong else None!r}.",
                "It averages only variables of floating dtypes.",
                "Give it a list of such variables: ema.apply(model.trainable_variables).",
            )
        for variable in variables:
            self._average_of(variable)
        rest = 1.0 - self._decay_now()
        for variable in variables:
            average = self._average_of(variable)
            average.assign_sub((average.value - variable.value) * tensor(rest, average.dtype))

    def average(self, var: Any) -> Any:
        """Return the variable that holds the average of a variable; None before `apply`.

        Args:
            var: The variable.
        """
        return self._averages.get(Reference(var))

    def average_name(self, var: Any) -> str:
        """Return the name of the average of a variable.

        Args:
            var: The variable.
        """
        return f"{var.name}/{self._name}"

    def _average_of(self, variable: Any) -> Any:
        key = Reference(variable)
        if key not in self._averages:
            # What a function that is being compiled makes of the variable is not there yet.
            value = stored_value(variable) if is_traced(variable.value) else variable.value
            facts: dict[str, Any] = {"name": self.average_name(variable), "trainable": False}
            if variable.aggregation != VariableAggregation.NONE:  # such a one is equal on all replicas
                facts["aggregation"] = VariableAggregation.MEAN
            self._averages[key] = Variable(value, **facts)
        return self._averages[key]

    def _decay_now(self) -> Any:
        if self._num_updates is None:
            return self._decay
        updates = tensor(self._num_updates, "float32")
        return tensor(self._decay, "float32").clip(max=(1.0 + updates) / (10.0 + updates))


def _is_averaged(each: object) -> bool:
    return isinstance(each, keras.Variable) and keras.backend.is_float_dtype(each.dtype)
