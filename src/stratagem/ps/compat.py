"""The only file of this folder that touches private parts of Keras (checked on 3.12.0, 3.15.1), and of `unittest`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import keras

from stratagem.core.errors import UsageError

_WHOLE_GRADIENT: Final = ("clipnorm", "clipvalue", "global_clipnorm", "loss_scale_factor")
"""Settings that need whole gradients, which parts do not see: workers apply them."""


Recipe: TypeAlias = tuple[type, dict[str, Any], dict[str, Any]]
"""What makes an optimizer: its class, its configuration, and attributes that this lacks."""

_OF_A_PROCESS: Final = ("_value", "_initializer")
"""Attributes of a variable that mean nothing elsewhere."""


def optimizer_recipe(optimizer: Any) -> Recipe:
    """Return what makes an optimizer that updates as this one does, once gradients are clipped."""
    kind, config, more = _recipe(optimizer)
    config.update({name: None for name in _WHOLE_GRADIENT if name in config})
    return kind, config, more


def optimizer_settings(optimizer: Any) -> tuple[Any, Any, Any, list[Any]]:
    """Return what a worker needs of an optimizer: its recipe, count of updates, learning rate, and what it updates.

    The count and the rate are variables; a learning rate may also be a schedule or a function. An optimizer that is
    not built yet updates nothing by itself.
    """
    targets = list(optimizer._trainable_variables) if optimizer.built else []
    return _recipe(optimizer), optimizer._iterations, optimizer._learning_rate, targets


def set_counters(optimizer: Any, iterations: Any, rate: Any) -> None:
    """Let an optimizer count, and take its learning rate, elsewhere."""
    set_untracked(optimizer, _iterations=iterations, _learning_rate=rate)


def set_untracked(optimizer: Any, **attributes: Any) -> None:
    """Set attributes of an optimizer without telling Keras, which would take variables for the optimizer's own."""
    for name, value in attributes.items():
        object.__setattr__(optimizer, name, value)


def scaling_settings(optimizer: Any) -> tuple[dict[str, Any], Any, Any]:
    """Return what a worker needs of a `LossScaleOptimizer`, beside the optimizer inside: its configuration, its scale
    and its count of finite steps. The last two are variables.

    Raises:
        UsageError: It is not built, so that it has none.
    """
    if not optimizer.built:
        raise UsageError(
            "A scheduled function uses a LossScaleOptimizer that is not built, so it has no scale to share yet.",
            "First write optimizer.build(model.trainable_variables).",
        )
    config = {name: getattr(optimizer, name) for name in ("initial_scale", "dynamic_growth_steps", "name")}
    return config, optimizer.dynamic_scale, optimizer.step_counter


def _recipe(optimizer: Any) -> Recipe:
    with warnings.catch_warnings():  # Keras 3.15 reads the learning rate by np.array, which NumPy 2 deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        config = optimizer.get_config()
    config["learning_rate"] = 0.0  # it comes with each gradient
    if getattr(optimizer, "_exclude_from_weight_decay", None):
        raise UsageError(
            f"{type(optimizer).__name__}.exclude_from_weight_decay was given var_list.",
            "Parameter servers know variables only by name, and would apply weight decay to these.",
            'Name them: optimizer.exclude_from_weight_decay(var_names=["bias", "gamma"]).',
        )
    left_out = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    return type(optimizer), config, {"_exclude_from_weight_decay_pattern": left_out} if left_out else {}


def settings_sent(optimizer: Any) -> dict[str, Any]:
    """Return the settings of an optimizer that servers and workers are told once."""
    return _recipe(optimizer)[1]


def accumulates(recipe: Recipe) -> bool:
    """Whether an optimizer adds up the gradients of several steps before it updates anything."""
    return bool(recipe[1].get("gradient_accumulation_steps"))


def fresh_optimizer(recipe: Recipe) -> Any:
    """Return an optimizer that was built with no variables yet."""
    kind, config, more = recipe
    optimizer = kind.from_config(config)
    for name, value in more.items():
        setattr(optimizer, name, value)
    return optimizer


def slots_by_variable(optimizer: Any) -> list[tuple[Any, list[Any]]]:
    """Return each variable of an optimizer that is built, with its slots in the order in which `Updater` has them.

    None stands for a slot that the optimizer does not have under that name.
    """
    if not optimizer.built:
        return []
    named = {slot.name: slot for slot in optimizer.variables}
    recipe, found = _recipe(optimizer), []
    for variable in optimizer._trainable_variables:
        alone = fresh_optimizer(recipe)
        alone.build([variable])
        found.append((variable, [named.get(slot.name) for slot in alone.variables[2:]]))
    return found


def clipped(optimizer: Any, gradients: Sequence[Any]) -> list[Any]:
    """Return whole gradients, unscaled and clipped as the optimizer says."""
    scale = optimizer.loss_scale_factor
    unscaled = [gradient if scale is None else gradient / scale for gradient in gradients]
    return list(optimizer._clip_gradients(unscaled))


def iterations_variable(optimizer: Any) -> Any:
    """Return the variable that counts updates; with accumulation, gradients."""
    return optimizer._iterations


class HeldElsewhere(keras.Variable):
    """A variable that holds no value: a subclass says how its value is had and given (`pulled`, `pushed`)."""

    companions: dict[str, Any]

    @property
    def _value(self) -> Any:
        return self.pulled()

    @_value.setter
    def _value(self, value: Any) -> None:
        if value is not None:  # Keras drops the values of a model while its own loops run
            self.pushed(value)

    @property
    def stored_dtype(self) -> str:
        """The dtype of the value, whatever autocast scope is open."""
        return self._dtype

    def pulled(self) -> Any:
        """Return the value."""
        raise NotImplementedError

    def pushed(self, value: Any) -> None:
        """Replace the value."""
        raise NotImplementedError


def held_elsewhere(variable: keras.Variable, kind: type[HeldElsewhere], more: Mapping[str, Any]) -> Any:
    """Turn a variable into one of another class; what it holds is given up.

    Args:
        variable: The variable. It stays the same object, so that layers and optimizers keep theirs.
        kind: Its new class.
        more: Attributes to set.
    """
    for name in _OF_A_PROCESS:
        variable.__dict__.pop(name, None)
    variable.__dict__.update(more)
    variable.__class__ = kind
    return variable


def beside(
    variable: keras.Variable, kind: type[HeldElsewhere], name: str, shape: Sequence[int], dtype: str,
    more: Mapping[str, Any],
) -> Any:  # fmt: skip
    """Return a new variable of a class that holds no value.

    Args:
        variable: Any variable; what is not said is as for this one.
        kind: The class.
        name: Its name.
        shape: Its shape.
        dtype: Its dtype.
        more: Attributes to set.
    """
    own = {"_name": name, "_path": name, "_shape": tuple(shape), "_ndim": len(shape), "_dtype": dtype}
    plain = {"_trainable": False, "_autocast": False, "_aggregation": "none", "_constraint": None, "_regularizer": None}
    return variable_like({**described(variable), **plain, **own}, kind, more)


def described(variable: keras.Variable) -> dict[str, Any]:
    """Return what another process needs to make a variable like this one, but for its value."""
    return {name: value for name, value in vars(variable).items() if name.startswith("_") and name not in _OF_A_PROCESS}


def variable_like(description: Mapping[str, Any], kind: type[keras.Variable], more: Mapping[str, Any]) -> Any:
    """Return a variable made of a description.

    Args:
        description: What `described` returned.
        kind: Its class.
        more: Attributes to set.
    """
    variable = object.__new__(kind)
    variable.__dict__.update(description, **more)
    return variable


def value_held(variable: keras.Variable) -> Any:
    """Return the value that a variable holds in this process; None before it is initialised."""
    return vars(variable).get("_value")


def from_the_inputs_on(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of an operation or a model, so that pickling walks along its graph and not into it.

    Each operation refers to those before it and to those behind it, so a network of 50 layers would be pickled one
    inside another, deeper than Python allows. Of a model all operations come first, those before others in front; and
    which ones are behind matters only where a graph is made.

    Args:
        attributes: Its attributes.
    """
    first = {"_operations": attributes["_operations"]} if "_operations" in attributes else {}
    behind = {"_outbound_nodes": []} if "_outbound_nodes" in attributes else {}
    return {**first, **attributes, **behind}


OF_THE_RUNNER: Final = "_outcome"
"""Attribute of a case of `unittest`, of which its function knows nothing."""


def describe_container(value: Any) -> tuple[dict[str, Any], list[Any]] | None:
    """Return the attributes and items of a list, dict or set that Keras tracks; None of anything else.

    Such a container cannot be pickled: unpickling puts items into it before it knows its tracker.
    """
    if not isinstance(value, list | dict | set) or not hasattr(value, "tracker"):
        return None
    return dict(vars(value)), list(value.items() if isinstance(value, dict) else value)


def empty_container(kind: type) -> Any:
    """Return an empty container of a class, not made by its constructor."""
    return _plain(kind).__new__(kind)


def fill_container(container: Any, description: tuple[dict[str, Any], list[Any]]) -> None:
    """Give a container the attributes and items of another, without telling its tracker."""
    attributes, items = description
    container.__dict__.update(attributes)
    plain = _plain(type(container))
    plain.extend(container, items) if plain is list else plain.update(container, items)


def _plain(kind: type) -> Any:
    return next(plain for plain in (list, dict, set) if issubclass(kind, plain))
