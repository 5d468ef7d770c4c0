"""Calls whose arguments or names differ in Keras 3, and their new form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import libcst as cst


@dataclass(frozen=True)
class Change:
    """Changes to calls of one function or method.

    Args:
        why: What the finding says.
        method: The new name of a method; empty where it stays.
        positional: The names of arguments given by position, if they must be named because their order differs.
        renamed: New names of arguments.
        dropped: Arguments that are gone and that had no effect on the result.
    """

    why: str
    method: str = ""
    positional: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Sequence[str] = ()


_OF_GENERATOR: Final = "generator steps callbacks max_queue_size workers use_multiprocessing verbose"
"""The arguments of `evaluate_generator` and `predict_generator` by position."""

_OF_FIT_GENERATOR: Final = """
    generator steps_per_epoch epochs verbose callbacks validation_data validation_steps validation_freq class_weight
    max_queue_size workers use_multiprocessing shuffle initial_epoch
"""
"""The arguments of `fit_generator` by position."""

METHODS: Final = {
    "compile": Change(
        "Keras 3's `compile` has no such arguments.", dropped=("sample_weight_mode", "experimental_run_tf_function")
    ),
    "evaluate_generator": Change("`evaluate` takes generators.", "evaluate", _OF_GENERATOR, {"generator": "x"}),
    "experimental_run_v2": Change("TensorFlow 2.2 renamed it to `run`.", "run"),
    "fit": Change("Keras 3 has another name for it.", renamed={"nb_epoch": "epochs"}),
    "fit_generator": Change(
        "`fit` takes generators.", "fit", _OF_FIT_GENERATOR, {"generator": "x", "nb_epoch": "epochs"}
    ),
    "predict_generator": Change("`predict` takes generators.", "predict", _OF_GENERATOR, {"generator": "x"}),
}
"""Methods of models and strategies, on whatever object a program calls them by these names."""

FUNCTIONS: Final = {
    r"tf\.keras\.layers\.BatchNormalization": Change("Keras 3 chooses the kernel itself.", dropped=("fused",)),
    r"tf\.keras\.layers\.[A-Z]\w*": Change(
        "Keras 3 has another name for it.", renamed={"border_mode": "padding", "subsample": "strides"}
    ),
    r"tf\.keras\.callbacks\.TensorBoard": Change(
        "Keras 3's TensorBoard has no such arguments.", dropped=("write_grads", "batch_size")
    ),
}
"""Functions and classes, by their full names."""

_COUNTS: Final = {
    r"tf\.keras\.layers\.(Dense|GRU|LSTM|SimpleRNN)": "units",
    r"tf\.keras\.layers\.(Separable)?Conv\w+": "filters",
}
"""Functions whose first argument was a number of any kind, and is a whole one."""

GONE: Final = {
    (r"tf\.keras\.layers\.(?!Embedding)\w+", "input_length"): "Write input_shape=(length, features).",
    (r"tf\.keras\.layers\.\w+", "time_major"): "Keras 3's RNNs are batch major: transpose their inputs and outputs.",
    (r"tf\.keras\.layers\.BatchNormalization", "virtual_batch_size"): "Keras 3 normalizes only over the whole batch.",
    (r"tf\.keras(\.layers)?\.Input", "ragged"): "JAX has no ragged tensors: pad to one length and use a mask.",
    (r"tf\.keras(\.layers)?\.Input", "tensor"): "Pass the tensor to a function or a layer, without an input.",
    (r"tf\.keras\.optimizers\.\w+", "schedule_decay"): "Keras 3's Nadam computes its schedule itself: leave it out.",
}
"""Arguments that are gone and mattered: a pattern of full names, the argument, what to do."""

GONE_METHODS: Final = {
    "experimental_make_numpy_dataset": "Write tf.data.Dataset.from_tensor_slices(array).",
    "make_dataset_iterator": "Write strategy.experimental_distribute_dataset(dataset).",
    "make_one_shot_iterator": "Write iter(dataset).",
    "make_initializable_iterator": "Write iter(dataset).",
}
"""Methods that are gone, on whatever object a program calls them by these names."""


def change_of(function: str | None, method: str) -> Change | None:
    """Return how the calls of a function change, or None if they do not.

    Args:
        function: Its full name; None for a method of an object.
        method: The method's name; empty for any other function.

    Example:
        >>> change_of(None, "fit").renamed
        {'nb_epoch': 'epochs'}
    """
    if function is None:
        return METHODS.get(method)
    return next((change for pattern, change in FUNCTIONS.items() if re.fullmatch(pattern, function)), None)


def gone_argument(function: str, keyword: str) -> str | None:
    """Return what to do about an argument that is gone, or None if it still exists.

    Example:
        >>> gone_argument("tf.keras.layers.LSTM", "time_major")
        "Keras 3's RNNs are batch major: transpose their inputs and outputs."
    """
    for (pattern, gone), what in GONE.items():
        if keyword == gone and re.fullmatch(pattern, function):
            return what
    return None


def counting_argument(call: cst.Call, function: str) -> cst.Arg | None:
    """Return the argument of a call that Keras 2 converted to a whole number, or None if there is none.

    Example:
        >>> call = cst.parse_expression("Dense(width / 2, use_bias=False)")
        >>> cst.Module([]).code_for_node(counting_argument(call, "tf.keras.layers.Dense").value)
        'width / 2'
    """
    name = next((name for pattern, name in _COUNTS.items() if re.fullmatch(pattern, function)), None)
    named = [argument for argument in call.args if argument.keyword is not None and argument.keyword.value == name]
    first = [argument for argument in call.args[:1] if argument.keyword is None and not argument.star]
    return None if name is None else next(iter(named or first), None)


def changed(call: cst.Call, change: Change) -> cst.Call:
    """Return a call in its new form; the same call if nothing in it changes, or if a comment would be lost.

    Example:
        >>> call = cst.parse_expression("model.fit_generator(batches, 10, workers=4)")
        >>> cst.Module([]).code_for_node(changed(call, METHODS["fit_generator"]))
        'model.fit(batches, steps_per_epoch=10, workers=4)'
    """
    arguments = [_named(number, argument, change) for number, argument in enumerate(call.args)]
    kept = [a for a in arguments if not (a.keyword and a.keyword.value in change.dropped and not _has_comment(a))]
    if kept and arguments[-1] is not kept[-1]:
        last = arguments[-1]
        kept[-1] = kept[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    function = call.func
    if change.method and isinstance(function, cst.Attribute):
        function = function.with_changes(attr=cst.Name(change.method))
    same = function is call.func and len(kept) == len(call.args)
    if same and all(new is old for new, old in zip(kept, call.args, strict=True)):
        return call
    return call.with_changes(func=function, args=kept)


def difference(old: cst.Call, new: cst.Call) -> str:
    """Return a short text about what has changed in a call.

    Example:
        >>> call = cst.parse_expression("model.fit_generator(batches, 10, nb_epoch=2, workers=4)")
        >>> difference(call, changed(call, METHODS["fit_generator"]))
        'model.fit_generator(10, nb_epoch=2, ...) -> model.fit(steps_per_epoch=10, epochs=2, ...)'
    """
    before, after = ({_code(a.with_changes(comma=cst.MaybeSentinel.DEFAULT)): None for a in c.args} for c in (old, new))
    shown = []
    for call, arguments, others in ((old, before, after), (new, after, before)):
        changes = [_shortened(argument) for argument in arguments if argument not in others]
        same = ["..."] if len(changes) < len(arguments) else []
        shown.append(f"{_code(call.func)}({', '.join([*changes, *same])})")
    return " -> ".join(shown)


def _named(number: int, argument: cst.Arg, change: Change) -> cst.Arg:
    """Return an argument under its new name; a first argument without a name stays so."""
    if argument.star:
        return argument
    if argument.keyword is None:
        names = change.positional.split()
        if number == 0 or number >= len(names):
            return argument
        name = names[number]
        no_space = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        return argument.with_changes(keyword=cst.Name(change.renamed.get(name, name)), equal=no_space)
    new = change.renamed.get(argument.keyword.value)
    return argument if new is None else argument.with_changes(keyword=cst.Name(new))


def _has_comment(argument: cst.Arg) -> bool:
    return "#" in _code(argument)


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node).strip()


def _shortened(code: str) -> str:
    return code if len(code) <= 40 and "\n" not in code else f"{code[:37].partition(chr(10))[0]}..."
