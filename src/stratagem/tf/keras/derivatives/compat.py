"""TensorFlow's derivatives in Keras's losses, activations, regularisers and layers, for programs that use `tf.keras`.

These are Keras's own objects, made by name ("mae", "leaky_relu", "l1") or by hand, and all compute through a few
functions of Keras's backend on JAX. So these functions get the rules of `stratagem.loop.derivatives`, when
`stratagem.tf.keras` is first used. Each stays what it was and its values the same, bit for bit; only its derivative is
another. A program that imports keras and stratagem alone keeps Keras's on JAX.

Checked on Keras 3.15.1 and a nightly build of 3.16.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
from keras.src.backend import jax as keras_on_jax

from stratagem.loop import derivatives
from stratagem.loop.derivatives import Function, Rule, ruled

_OPERATIONS: Final[Any] = getattr(keras_on_jax, "ops", keras_on_jax)  # the first since Keras 3.16
core, math, nn, numpy = _OPERATIONS.core, _OPERATIONS.math, _OPERATIONS.nn, _OPERATIONS.numpy

Rules = Callable[[Mapping[str, Any]], tuple[Rule, ...] | None]
"""Function of a call's arguments by their names that returns a rule for each of the first; None to leave it to JAX."""


def _always(like: Function) -> Rules:
    return lambda given: like.rules  # pyright: ignore[reportFunctionMemberAccess]


def _of_logits(given: Mapping[str, Any]) -> tuple[Rule, ...] | None:
    """Of probabilities Keras computes otherwise than TensorFlow; there its own derivative is that of its value."""
    return derivatives.softmax_cross_entropy_rules(given["axis"]) if given["from_logits"] else None


def _of_volumes(given: Mapping[str, Any]) -> tuple[Rule, ...] | None:
    x = given["inputs"]
    if x.ndim != 5:
        return None
    last = keras.config.image_data_format() if given["data_format"] is None else given["data_format"]
    sizes, steps = (
        (each,) * 3 if isinstance(each, int) else tuple(each)
        for each in (given["pool_size"], given["pool_size"] if given["strides"] is None else given["strides"])
    )
    window, strides = ((1, *each, 1) if last == "channels_last" else (1, 1, *each) for each in (sizes, steps))
    padding = tuple(jax.lax.padtype_to_pads(x.shape, window, strides, given["padding"].upper()))
    return derivatives.max_pool_3d(window, strides, padding).rules  # pyright: ignore[reportFunctionMemberAccess]


_RULES: Final[tuple[tuple[ModuleType, str, Rules], ...]] = (
    # L1, mean_absolute_error, hinge, constraints, the layers Maximum and Minimum, ReLU with a bound
    (numpy, "absolute", _always(derivatives.absolute)),
    (numpy, "maximum", _always(derivatives.maximum)),
    (numpy, "minimum", _always(derivatives.minimum)),
    (numpy, "clip", _always(derivatives.clip)),
    (numpy, "sign", _always(derivatives.sign)),
    (numpy, "power", lambda given: derivatives.POWER_RULES),
    # lengths of zero: CosineSimilarity, UnitNormalization, MaxNorm
    (numpy, "sqrt", _always(derivatives.sqrt)),
    (math, "rsqrt", _always(derivatives.rsqrt)),
    # activations and the layers by their names
    (nn, "leaky_relu", lambda given: derivatives.leaky_relu_rules(given["negative_slope"])),
    (nn, "elu", lambda given: derivatives.elu_rules(given["alpha"])),
    (nn, "selu", _always(derivatives.selu)),
    (nn, "softsign", _always(derivatives.softsign)),
    # labels that do not add up to 1, as those of padding
    (nn, "categorical_crossentropy", _of_logits),
    # ties in MaxPooling3D
    (nn, "max_pool", _of_volumes),
)
"""Functions of Keras's backend, and the rules they get."""

_ORIGINALS: Final[dict[tuple[ModuleType, str], Function]] = {}


def _with_rules(original: Function, rules: Rules) -> Function:
    """Return a function of Keras's backend with other derivatives by its tensors of floating-point numbers."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {
            name: value.value if isinstance(value, keras.Variable) else value for name, value in bound.arguments.items()
        }
        names = [name for name, value in given.items() if _has_derivative(value)]
        found = rules(given) if names else None
        if found is None:
            return original(*args, **kwargs)
        rule_of = dict(zip(given, found, strict=False))

        def compute(*tensors: Any) -> Any:
            return original(**{**given, **dict(zip(names, tensors, strict=True))})

        def rule(name: str) -> Rule:
            own = rule_of.get(name)
            if own is None:
                return None
            return lambda t, y, *tensors: own(
                t, y, *[{**given, **dict(zip(names, tensors, strict=True))}[each] for each in rule_of]
            )

        return ruled(compute, *(rule(name) for name in names))(*(given[name] for name in names))

    return call


def _has_derivative(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating)


def _constant(original: Function) -> Function:
    """Wrap `stop_gradient`: of an array that a tape watches too."""

    @functools.wraps(original)
    def stop_gradient(variable: Any) -> Any:
        value = variable.value if isinstance(variable, keras.Variable) else variable
        return derivatives.constant(value) if isinstance(value, jax.Array) else original(variable)

    return stop_gradient


def _replacements() -> Iterator[tuple[ModuleType, str, Function]]:
    for module, name, rules in _RULES:
        yield module, name, _with_rules(getattr(module, name), rules)
    yield core, "stop_gradient", _constant(core.stop_gradient)


def install() -> None:
    """Give Keras's functions TensorFlow's derivatives. Harmless when done."""
    if not _ORIGINALS:
        for module, name, replacement in list(_replacements()):
            _ORIGINALS[module, name] = getattr(module, name)
            setattr(module, name, replacement)


def uninstall() -> None:
    """Give Keras's functions their own derivatives back. Harmless when done."""
    for (module, name), original in _ORIGINALS.items():
        setattr(module, name, original)
    _ORIGINALS.clear()
