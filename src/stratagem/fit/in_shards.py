"""`load_weights` and `quantize` of a model whose weights rest in shards, which all workers call together.

The model has them on the instance. What `load_weights` reads, one variable after the other, is divided in groups
(`program.dividing`). `quantize` computes int8 weights from the wholes, which each worker is lent meanwhile.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Final

from stratagem.mesh.divided import is_divided
from stratagem.mesh.lending import readable
from stratagem.mesh.placing import Agreeing
from stratagem.mesh.shards import Sharding
from stratagem.program.dividing import dividing

_OWN: Final = "{}_whole"
"""Attribute of a model that had such a method of its own before: `tf.keras`'s have a `load_weights`, Keras wraps
`quantize` of each."""


def work_in_shards(model: Any, strategy: Agreeing, sharding: Sharding | None, in_fit: Callable[[], bool]) -> None:
    """Give a model the methods that its weights in shards need; none where they rest whole.

    Args:
        model: A Keras model of a strategy.
        strategy: The strategy.
        sharding: What it keeps in shards; None for nothing.
        in_fit: Whether `fit` or one of its siblings is running.
    """
    if sharding is None or not sharding.divides_weights:
        return

    def load_weights(model: Any, *args: Any, **kwargs: Any) -> Any:
        read = functools.partial(_own(model, "load_weights"), *args, **kwargs)
        if in_fit():  # a callback, which other workers may not have
            return read()
        strategy.check_agreement("load_weights", {"model": model.name, "variables": len(model.variables)})
        with dividing(strategy, sharding, f"values that load_weights of model {model.name!r} reads"):
            return read()

    def quantize(model: Any, *args: Any, **kwargs: Any) -> Any:
        compute = functools.partial(_own(model, "quantize"), *args, **kwargs)
        if in_fit():  # see above
            return compute()
        strategy.check_agreement("quantize", {"model": model.name, "variables": len(model.variables)})
        with readable([variable for variable in model.variables if is_divided(variable.value)], reads=True):
            return compute()

    for method in (load_weights, quantize):
        name = method.__name__
        # Not by its own `__setattr__`, which tracks what it is given. A method is copied and pickled by its name.
        if name in vars(model):
            object.__setattr__(model, _OWN.format(name), vars(model)[name])
        object.__setattr__(model, name, types.MethodType(method, model))


def _own(model: Any, name: str) -> Callable[..., Any]:
    """Return the method of a model that this module's stands before."""
    return vars(model).get(_OWN.format(name)) or functools.partial(getattr(type(model), name), model)
