"""Writing of modules: one file with the graph of objects, the values of variables and the programs of functions.

The file is laid out like a checkpoint (`stratagem.checkpoint.storage`). Its JSON lists the objects, each with the
numbers of its parts; the arrays are the variables' values and the programs, by the numbers of both.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import keras
import numpy as np

from stratagem.checkpoint import file_names, storage
from stratagem.checkpoint.background import failure_of, host_views
from stratagem.checkpoint.collective_io import finish_together, take_turn
from stratagem.checkpoint.objects import WITH_STATE, parts_of
from stratagem.cluster.bootstrap import current_peers
from stratagem.core.errors import InputError
from stratagem.data.specs import TensorSpec
from stratagem.loop.exporting import ProgramForFile, programs_for_file
from stratagem.loop.function import is_compiled
from stratagem.loop.seen import PLAIN
from stratagem.mesh.same_values import check_same_values
from stratagem.program.remote_values import lives_elsewhere, values_of
from stratagem.tf.keras.folders import FILE, MODULE
from stratagem.tf.saved_model.described import described
from stratagem.tf.saved_model.models import DEFAULT_SERVING_SIGNATURE_DEF_KEY
from stratagem.tf.tensors.variables import Module

VALUE: Final = "value/"
PROGRAM: Final = "program/"
"""What names of arrays begin with; the number of the object or program follows."""


def path_in(folder: str) -> str:
    """Return what `stratagem.checkpoint.storage` calls the file of a folder."""
    return os.path.join(folder, MODULE)


def is_in(folder: str) -> bool:
    """Return whether a folder holds a module."""
    return file_names.file_of(path_in(folder)).exists()


def write(obj: Any, folder: str, signatures: Any) -> None:
    """Write an object into a folder; see `tf.saved_model.save`.

    Of a Keras model the file holds the signatures alone: the model's layers and variables are in a file of their own.

    Args:
        obj: The object.
        folder: The folder.
        signatures: Functions by name, one, or None.
    """
    if not isinstance(obj, WITH_STATE):
        raise InputError(
            f"tf.saved_model.save was given a {type(obj).__name__}.",
            "It has no variables or functions that could be saved.",
            "Give a Keras model, a tf.Module with them as attributes, a tf.train.Checkpoint, or a variable.",
        )
    is_model = isinstance(obj, keras.Model)
    graph = _Graph(obj.variables if is_model else ())
    if not is_model:
        graph.add(obj)
    graph.add_signatures(_signatures(obj, signatures))
    metadata = json.dumps({"objects": graph.objects, "programs": graph.programs, "signatures": graph.signatures})
    variables = graph.variables
    values = dict(zip(variables, values_of(list(variables.values())), strict=True))
    if is_model:
        obj.save(folder)
    path = path_in(folder)
    turn = take_turn(path, path, None)
    mirrored = {variable.path: variable.value for variable in variables.values() if not lives_elsewhere(variable)}
    check_same_values("when a model is saved", mirrored, current_peers())

    def written() -> None:
        programs = {f"{PROGRAM}{i}": np.frombuffer(data, np.uint8) for i, data in enumerate(graph.data)}
        storage.write(turn.path, metadata, {**host_views(values), **programs})
        if not is_model and os.path.exists(os.path.join(folder, FILE)):  # of a Keras model, saved here before
            os.remove(os.path.join(folder, FILE))

    finish_together(failure_of(written) if turn.writes else None)


def _signatures(obj: Any, given: Any) -> dict[str, Any]:
    """Return the functions that are signatures, by name."""
    if given is None:
        able = [each for each in _functions(obj).values() if each.has_signature and _is_flat(each.seen_arguments()[0])]
        return {DEFAULT_SERVING_SIGNATURE_DEF_KEY: able[0]} if len(able) == 1 else {}
    functions = dict(given) if isinstance(given, Mapping) else {DEFAULT_SERVING_SIGNATURE_DEF_KEY: given}
    for name, function in functions.items():
        if not is_compiled(function) or len(function.seen_arguments()) != 1:
            raise InputError(
                f"tf.saved_model.save was given {function!r} as the signature {name!r}.",
                "The function does not say which tensors it takes.",
                "Write @tf.function(input_signature=[tf.TensorSpec([None, 3])]) above it, or give "
                "function.get_concrete_function(tf.TensorSpec([None, 3])).",
            )
    return functions


def _is_flat(arguments: Any) -> bool:
    return all(isinstance(leaf, TensorSpec) for leaf in jax.tree.leaves(arguments, is_leaf=lambda leaf: leaf is None))


def _functions(obj: Any) -> dict[str, Any]:
    """Return the compiled functions of an object by name: methods of its class, and attributes."""
    kind = type(obj)
    methods = [name for name in dir(kind) if is_compiled(inspect.getattr_static(kind, name, None))]
    own = {name: value for name, value in vars(obj).items() if is_compiled(value)}
    return {**{name: getattr(obj, name) for name in methods}, **own}


class _Graph:
    """The objects that a file holds.

    Attributes:
        objects: Their descriptions.
        programs: Those of the programs.
        data: The programs.
        signatures: Those of the signatures.
        variables: The variables by the names of their values.

    Args:
        of_model: Variables that another file of the folder holds, in the order in which a model has them.
    """

    def __init__(self, of_model: Sequence[Any] = ()) -> None:
        self._of_model = {id(variable): place for place, variable in enumerate(of_model)}
        self.objects: list[dict[str, Any]] = []
        self.programs: list[dict[str, Any]] = []
        self.data: list[bytes] = []
        self.signatures: dict[str, Any] = {}
        self.variables: dict[str, Any] = {}
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        self._programs: dict[int, list[int]] = {}

    def add(self, value: Any) -> int | None:
        """Return the number of an object, which is added with its parts; None for what a file cannot hold."""
        if id(value) in self._numbers:
            return self._numbers[id(value)]
        if isinstance(value, list | dict) or type(value) is tuple:
            return self._add_container(value)
        if is_compiled(value):
            return self._add_function(value)
        if not isinstance(value, WITH_STATE):
            return None
        if isinstance(value, keras.Variable):
            return self._add_variable(value)
        number = self._new(value, {"kind": "object", "parts": {}})
        parts = {name: self.add(part) for name, part in _parts(value).items()}
        self.objects[number]["parts"] = {name: part for name, part in parts.items() if part is not None}
        return number

    def add_signatures(self, functions: Mapping[str, Any]) -> None:
        """Add signatures."""
        for name, function in functions.items():
            programs = [self._program(each) for each in programs_for_file(function)]
            inputs = _names_of_inputs(function)
            self.signatures[name] = {"programs": programs, "inputs": inputs}

    def _new(self, value: Any, description: dict[str, Any]) -> int:
        self._kept.append(value)  # so that no other object has its id
        self._numbers[id(value)] = len(self.objects)
        self.objects.append(description)
        return len(self.objects) - 1

    def _add_container(self, value: Any) -> int | None:
        if isinstance(value, dict):
            parts: Any = {str(key): self.add(part) for key, part in value.items()}
            held = list(parts.values())
        else:
            parts = held = [self.add(part) for part in value]
        if all(part is None for part in held):
            return None
        kind = "dict" if isinstance(value, dict) else "list" if isinstance(value, list) else "tuple"
        return self._new(value, {"kind": kind, "parts": parts})

    def _add_variable(self, variable: Any) -> int:
        if id(variable) in self._of_model:
            return self._new(variable, {"kind": "variable_of_model", "place": self._of_model[id(variable)]})
        number = self._new(
            variable,
            {
                "kind": "variable",
                "name": variable.name,
                "trainable": variable.trainable,
                "synchronization": variable.synchronization,
                "aggregation": getattr(variable, "combines", variable.aggregation),
            },
        )
        self.variables[f"{VALUE}{number}"] = variable
        return number

    def _add_function(self, function: Any) -> int:
        fn = function.python_function
        description: dict[str, Any] = {"kind": "function", "name": fn.__qualname__, "programs": []}
        number = self._new(function, description)
        try:
            description["parameters"] = _parameters(fn)
            description["programs"] = [self._program(each) for each in programs_for_file(function)]
        except InputError as error:  # as in TensorFlow, what cannot be saved does not keep the rest from it
            description["left_out"] = str(error)
        return number

    def _program(self, program: ProgramForFile) -> int:
        description = {"arguments": described(program.arguments), "outputs": described(program.outputs)}
        variables = [self.add(variable) for variable in program.variables]
        self.programs.append({**description, "variables": variables, "assigned": program.assigned})
        self.data.append(program.data)
        return len(self.data) - 1


def _parts(value: Any) -> dict[str, Any]:
    """Return what an object consists of by name, functions among it."""
    parts = vars(value) if isinstance(value, Module) else parts_of(value, "")
    return {**parts, **_functions(value)}


def _parameters(fn: Any) -> list[Any]:
    """Return the parameters of a function: name, kind, and, in a list, the default."""

    def default(parameter: inspect.Parameter) -> list[Any]:
        is_plain = isinstance(parameter.default, PLAIN) and parameter.default is not inspect.Parameter.empty
        return [parameter.default] if is_plain else []

    return [[each.name, int(each.kind), default(each)] for each in inspect.signature(fn).parameters.values()]


def _names_of_inputs(function: Any) -> list[str]:
    """Return names for the tensors among the arguments of a function: those of the specs, or of the parameters."""
    ((args, kwargs),) = function.seen_arguments()
    names = list(inspect.signature(function.python_function).parameters)
    found = []
    for name, part in [*zip(names, args, strict=False), *kwargs.items()]:
        leaves = jax.tree.leaves(part)
        found += [leaf.name or (name if len(leaves) == 1 else f"{name}_{i}") for i, leaf in enumerate(leaves)]
    return found
