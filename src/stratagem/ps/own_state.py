"""State that a scheduled function leaves behind on its worker: no other worker sees it, and no checkpoint holds it.

| left behind                                                 | what becomes of it                          |
| ----------------------------------------------------------- | ------------------------------------------- |
| a variable that the function has made and the program keeps | an error: it belongs on the servers         |
| a layer or metric that the function has built               | the same                                    |
| a number, list or attribute of Python                       | it stays on this worker, and a line says so |
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import keras

from stratagem.core.errors import UsageError
from stratagem.core.log import announce_once
from stratagem.core.made_here import Made
from stratagem.program.captured_names import captured_by
from stratagem.program.guards import CapturedValue, Guards, is_hashable, is_number
from stratagem.program.remote_values import lives_elsewhere
from stratagem.ps.streams import is_seed

_KERAS: Final = (keras.Variable, keras.Operation, keras.metrics.Metric, keras.optimizers.Optimizer)

_OWN: Final = "Each worker would have its own copy. No other worker would see it, and no checkpoint would hold it."

_LAYER: Final = (
    "Build it on the chief, in strategy.scope(), before it is scheduled: layer.build(shape), or model(example_batch)."
)
_METRIC: Final = (
    "Make metrics on the chief, in strategy.scope(): compile(metrics=[keras.metrics.BinaryAccuracy()]), not a name, "
    "because Keras makes the metric of a name only when it first gets numbers."
)


class OwnState:
    """Watches over the functions of one worker."""

    def __init__(self) -> None:
        self._unbuilt: weakref.WeakSet[Any] = weakref.WeakSet()
        self._refused: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._looks: weakref.WeakKeyDictionary[Any, tuple[Guards, list[Any]]] = weakref.WeakKeyDictionary()

    def came(self, keras_object: Any) -> None:
        """Take note of a layer or metric that came to this worker unbuilt."""
        self._unbuilt.add(keras_object)

    def before(self, function: Callable[..., Any]) -> None:
        """Look at what a function refers to, before it first runs.

        Raises:
            UsageError: It has left variables behind.
        """
        if not _is_watchable(function):
            return
        if function in self._refused:
            raise UsageError(self._refused[function])
        if function not in self._looks:
            self._look(function)

    def after(self, function: Callable[..., Any], made: Made) -> None:
        """Look at what a function has left behind.

        Args:
            function: The function.
            made: The variables that it has made.

        Raises:
            UsageError: The program keeps variables of its own on this worker.
        """
        error = self._variables_left(made)
        if error is not None:
            if _is_watchable(function):
                self._refused[function] = str(error)
            raise error
        if _is_watchable(function) and function in self._looks:
            self._tell_of_changes(function)

    def _variables_left(self, made: Made) -> UsageError | None:
        for variable in made.kept():
            if not lives_elsewhere(variable):
                return UsageError(
                    f"A scheduled function has made a variable, {variable.path!r}, and the program keeps it.",
                    _OWN,
                    "Make it before, on the chief, in strategy.scope(); with per_worker_variable=True if each worker "
                    "needs its own.",
                )
        for layer in list(self._unbuilt):
            own = next(_own_variables(layer), None)
            if own is not None:
                self._unbuilt.discard(layer)
                return UsageError(
                    f"A scheduled function has built {type(layer).__name__} {layer.name!r}, and made {own.path!r}.",
                    _OWN,
                    _METRIC if isinstance(layer, keras.metrics.Metric) else _LAYER,
                )
        return None

    def _look(self, function: Any) -> None:
        guards = captured_by(function)
        self._looks[function] = guards, _numbers(guards)

    def _tell_of_changes(self, function: Any) -> None:
        guards, numbers = self._looks[function]
        if guards.hold(function) and _numbers(guards) == numbers:
            return
        self._look(function)
        places = zip(guards.places, _numbers(guards), numbers, strict=True)
        changed = [_name_of(place) for place, now, then in places if now != then]
        # Keras keeps lists of its variables, which grow where an optimizer or layer is used.
        changed += [".".join(path) for path, content in guards.changed_contents() if not _is_of_keras(content)]
        if changed:
            name = getattr(function, "__qualname__", type(function).__name__)
            announce_once(
                f"{name}, which was given to coordinator.schedule, has changed {', '.join(dict.fromkeys(changed))} on "
                "a worker. That is a copy: neither the chief nor another worker sees the change. Return it from the "
                "function, or write a tf.Variable."
            )


def _name_of(place: CapturedValue) -> str:
    return place.name if isinstance(place.name, str) else "a number"


def _is_of_keras(content: Any) -> bool:
    items = content.values() if isinstance(content, Mapping) else content
    return hasattr(content, "tracker") or any(isinstance(item, _KERAS) for item in items)


def _is_watchable(function: Any) -> bool:
    return is_hashable(function) and getattr(type(function), "__weakrefoffset__", 0) != 0


def _own_variables(layer: Any) -> Iterator[Any]:
    for variable in layer.variables:
        if isinstance(variable, keras.Variable) and not lives_elsewhere(variable) and not is_seed(variable):
            yield variable


def _numbers(guards: Guards) -> list[Any]:
    return [value if is_number(value := place.get()) else None for place in guards.places]
