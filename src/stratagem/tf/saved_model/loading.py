"""Loading of modules: the objects of a file, with variables made anew and functions that run its programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
from jax import export as jax_export

from stratagem.checkpoint import storage
from stratagem.checkpoint.collective_io import read_together
from stratagem.core import optional
from stratagem.core.errors import InputError
from stratagem.data.specs import TensorSpec
from stratagem.loop.function import function
from stratagem.loop.seen import Arguments, filled
from stratagem.mesh.mesh import Tree
from stratagem.program.remote_values import values_of
from stratagem.tf.saved_model.described import structure_of, tensors_of
from stratagem.tf.saved_model.writing import PROGRAM, VALUE, path_in
from stratagem.tf.tensors.variables import Module, Variable

_FORMAT_REMEDY = (
    "Call it with arguments it was saved for. Or save it again after such a call, or with an input_signature."
)


def load(folder: str) -> Any:
    """Return what a folder holds; see `tf.saved_model.load`.

    Args:
        folder: The folder.
    """
    found = read_together(path_in(folder))
    assert found is not None, "a path was given"
    blob, path = found
    return _Reader(storage.decode(blob, path)).root()


def signatures_of_model(folder: str, model: Any) -> dict[str, Any]:
    """Return the signatures that a folder holds of a Keras model; they compute with the model's variables.

    Args:
        folder: The folder.
        model: The model, which was loaded from the same folder.
    """
    found = read_together(path_in(folder))
    assert found is not None, "a path was given"
    blob, path = found
    return _Reader(storage.decode(blob, path), model.variables).signatures()


class LoadedObject(Module):
    """A loaded object. It has `signatures` and the attributes that held variables and functions."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__()
        vars(self).update(parts)

    def __call__(self, *args: Any, **kwargs: Any) -> Tree:
        """Call the function that was saved as `__call__`.

        Raises:
            InputError: No such function was saved, or it was not saved for these arguments.
        """
        call = vars(self).get("__call__")
        if call is None:
            raise InputError(
                f"A loaded object without a saved __call__ was called; it has {', '.join(sorted(vars(self)))}.",
                "Write @tf.function above __call__ in the class that is saved.",
            )
        return call(*args, **kwargs)


class Signature:
    """A function of a loaded object that takes tensors by name and returns tensors by name.

    Attributes:
        structured_input_signature: An empty tuple, and a dictionary of the `TensorSpec` of each input by name.
        structured_outputs: A dictionary of the `TensorSpec` of each output by name.

    Args:
        name: The name of the signature.
        names: The names of the inputs, in the order of the programs' tensors.
        programs: The programs of the function.
    """

    def __init__(self, name: str, names: Sequence[str], programs: Sequence[_Program]) -> None:
        self._name = name
        self._names = list(names)
        specs = [leaf for leaf in jax.tree.leaves(programs[0].arguments) if isinstance(leaf, TensorSpec)]
        self.structured_input_signature = ((), dict(zip(self._names, specs, strict=True)))
        self.structured_outputs = _named(programs[0].outputs)
        self._call = function(
            lambda *tensors: _named(_result(name, programs, lambda program: (program.leaves, tensors)))
        )

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the outputs.

        Args:
            args: Tensors in their order; TensorFlow takes at most one.
            kwargs: Tensors by name.

        Raises:
            InputError: These are not the tensors that the function takes.
        """
        given = {**dict(zip(self._names, args, strict=False)), **kwargs}
        if given.keys() != set(self._names) or len(args) + len(kwargs) != len(given):
            raise InputError(
                f"The signature {self._name!r} was given {len(args)} tensors in order, and {sorted(kwargs)} by name.",
                f"Give {', '.join(f'{name}=' for name in self._names) or 'nothing'}.",
            )
        return self._call(*(given[name] for name in self._names))


_KIND: Final = type(inspect.Parameter.POSITIONAL_ONLY)
"""Enumeration of the ways in which a parameter takes its argument."""


class _Program:
    """A program of a file.

    Attributes:
        arguments: The arguments that it is for, tensors as `TensorSpec`.
        outputs: Its result, tensors as `TensorSpec`.
        leaves: The tensors among the arguments.
    """

    def __init__(self, description: Mapping[str, Any], data: bytes, variables: Sequence[Any]) -> None:
        args, kwargs = structure_of(description["arguments"])
        self.arguments: Arguments = (args, kwargs)
        self.outputs = structure_of(description["outputs"])
        self.leaves = tuple(leaf for leaf in jax.tree.leaves(self.arguments) if isinstance(leaf, TensorSpec))
        self._variables = list(variables)
        self._assigned = description["assigned"]
        self._call = jax_export.deserialize(bytearray(data)).call

    def run(self, tensors: Sequence[Any]) -> Tree:
        """Return its result for tensors, and assign what it assigns."""
        outputs, changed = self._call(values_of(self._variables), list(tensors))
        for place, value in zip(self._assigned, changed, strict=True):
            self._variables[place].assign(value)
        return jax.tree.structure(self.outputs).unflatten(outputs)


def _result(name: str, programs: Sequence[_Program], given: Callable[[_Program], tuple[Any, Any]]) -> Tree:
    """Return the result of the first program that is for what is given.

    Args:
        name: Whose programs they are, for messages.
        programs: The programs.
        given: Function of a program that returns what it takes, and what is given.

    Raises:
        InputError: There is none.
    """
    for program in programs:
        tensors = tensors_of(*given(program))
        if tensors is not None:
            return program.run(tensors)
    options = "; ".join(_said(given(program)[0]) for program in programs) or "nothing: it was never called"
    raise InputError(
        f"Could not find matching concrete function to call loaded from the SavedModel: {name} was given "
        f"{_said(given(programs[0])[1]) if programs else 'arguments'}, and was saved for {options}.",
        "A saved function runs without its Python code, so it takes only these.",
        _FORMAT_REMEDY,
    )


def _said(value: Any) -> str:
    """Return a structure of tensors and plain values as people read it."""
    leaves = jax.tree.leaves(value, is_leaf=lambda leaf: leaf is None)
    return (
        f"({', '.join(f'{leaf.dtype}{list(leaf.shape)}' if hasattr(leaf, 'dtype') else repr(leaf) for leaf in leaves)})"
    )


def _named(outputs: Any) -> dict[str, Any]:
    """Return the outputs of a signature by name, as in TensorFlow: those that have none are counted from 0."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    parts = outputs if isinstance(outputs, list | tuple) else [outputs]
    return {f"output_{number}": part for number, part in enumerate(parts) if part is not None}


class _Reader:
    """The objects of a file, made when they are asked for.

    Args:
        contents: The file's.
        of_model: The variables of the model that the file belongs to.
    """

    def __init__(self, contents: storage.Contents, of_model: Sequence[Any] = ()) -> None:
        optional.load("flatbuffers", "export", "tf.saved_model.load of a function")
        self._objects: list[dict[str, Any]] = contents.metadata["objects"]
        self._descriptions: list[dict[str, Any]] = contents.metadata["programs"]
        self._signatures: dict[str, Any] = contents.metadata["signatures"]
        self._arrays = contents.arrays
        self._of_model = of_model
        self._made: dict[int, Any] = {}
        self._programs: dict[int, _Program] = {}

    def root(self) -> Any:
        """Return the object that was saved."""
        root = self._object(0)
        if isinstance(root, LoadedObject):
            vars(root)["signatures"] = self.signatures()
        return root

    def signatures(self) -> dict[str, Any]:
        """Return the signatures by name."""
        return {
            name: Signature(name, each["inputs"], [self._program(number) for number in each["programs"]])
            for name, each in self._signatures.items()
        }

    def _object(self, number: int | None) -> Any:
        if number is None:
            return None
        if number not in self._made:
            made = getattr(self, f"_make_{self._objects[number]['kind']}")(number, self._objects[number])
            self._made[number] = made
        return self._made[number]

    def _make_object(self, number: int, description: Mapping[str, Any]) -> LoadedObject:
        made = self._made[number] = LoadedObject({})  # before its parts, which may refer to it
        vars(made).update({name: self._object(part) for name, part in description["parts"].items()})
        return made

    def _make_list(self, _: int, description: Mapping[str, Any]) -> list[Any]:
        return [self._object(part) for part in description["parts"]]

    def _make_tuple(self, _: int, description: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(self._object(part) for part in description["parts"])

    def _make_dict(self, _: int, description: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self._object(part) for key, part in description["parts"].items()}

    def _make_variable_of_model(self, _: int, description: Mapping[str, Any]) -> Any:
        return self._of_model[description["place"]]

    def _make_variable(self, number: int, description: Mapping[str, Any]) -> Any:
        value, synchronization = self._arrays[f"{VALUE}{number}"], description["synchronization"]
        made = Variable(
            value,
            trainable=description["trainable"],
            name=description["name"],
            synchronization="auto" if synchronization == "none" else synchronization,
            aggregation=description["aggregation"],
        )
        if synchronization == "on_read":  # the value is that of the replicas together; each was made with all of it
            made.assign(value)
        return made

    def _make_function(self, _: int, description: Mapping[str, Any]) -> Any:
        name = description["name"]
        if "left_out" in description:
            return _left_out(name, description["left_out"])
        programs = [self._program(number) for number in description["programs"]]
        parameters = [
            inspect.Parameter(own, _KIND(kind), default=default[0] if default else inspect.Parameter.empty)
            for own, kind, default in description["parameters"]
        ]
        return _function(name, inspect.Signature(parameters), programs)

    def _program(self, number: int) -> _Program:
        if number not in self._programs:
            description = self._descriptions[number]
            variables = [self._object(variable) for variable in description["variables"]]
            data = self._arrays[f"{PROGRAM}{number}"].tobytes()
            self._programs[number] = _Program(description, data, variables)
        return self._programs[number]


def _function(name: str, signature: inspect.Signature, programs: Sequence[_Program]) -> Any:
    """Return a compiled function that runs programs, for the arguments that each is for."""

    def call(*args: Any, **kwargs: Any) -> Tree:
        given = filled(signature, args, kwargs)
        return _result(name, programs, lambda program: (program.arguments, given))

    call.__name__ = call.__qualname__ = name
    vars(call)["__signature__"] = signature
    compiled = function(call)
    for program in programs:
        compiled.see(*program.arguments)
    return compiled


def _left_out(name: str, why: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Tree:
        raise InputError(f"{name} was left out of the file when it was saved. {why}", "Call a function that was saved.")

    return call
