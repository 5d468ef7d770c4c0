"""Cases of operations: one table, run alike under TensorFlow (`record.py`) and under `stratagem.tf` (the tests).

A case is a line of a file in `cases/`:

    tf.maximum(x, y) | x = [-1, 0, nan] | y = [0, 0, 1] ; float32 rtol=1e-4

An expression, the inputs it uses, and options. Inputs that are lists of Python's numbers are run in float32 and in
bfloat16, unless the options name other dtypes; an input of another kind names it (`i = ints(0, 2)`), a variable is
`x:var`. Other options: `order=0` (no derivatives) or `order=1`; `rtol=` and `atol=` for float32; `exact`; `raises`:
that TensorFlow refuses it; `otherwise`: that the result is another one, always or on some releases
(`otherwise=keras<3.15`). A line that begins with `=` sets options for the lines below it. `tf.math.<sin cos>(x)` stands
for several cases. What follows `#` is a comment.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

FOLDER: Final = Path(__file__).parent
DTYPES: Final = ("float32", "bfloat16", "float16", "float64", "int32", "complex64")
_DEFAULTS: Final = ("float32", "bfloat16")

INF: Final = float("inf")
NAN: Final = float("nan")


def _numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def grid(*shape: int, scale: float = 0.25, start: int = 0) -> np.ndarray:
    """Return numbers of both signs in no order, without ties up to 61 of them, that bfloat16 holds exactly."""
    count = int(np.prod(shape))
    return (((np.arange(count) + start) * 37 % 61 - 30) * scale).astype(np.float64).reshape(shape)


def line(first: float, last: float, count: int) -> np.ndarray:
    """Return numbers at equal distances."""
    return np.linspace(first, last, count)


def positive(*shape: int) -> np.ndarray:
    """Return positive numbers in no order, without ties up to 29 of them."""
    return (((np.arange(int(np.prod(shape))) * 17) % 29 + 1) / 8).reshape(shape)


def ints(*values: Any) -> np.ndarray:
    """Return whole numbers; one list alone gives the shape."""
    return np.array(values[0] if len(values) == 1 else values, np.int32)


def places(indices: Any) -> np.ndarray:
    """Return the indices of a sparse tensor."""
    return np.array(indices, np.int64)


def typed(dtype: str, values: Any) -> np.ndarray:
    """Return numbers of this dtype, in all runs."""
    return np.array(values, _numpy_dtype(dtype))


def bools(*values: Any) -> np.ndarray:
    """Return booleans; one list alone gives the shape."""
    return np.array(values[0] if len(values) == 1 else values, np.bool_)


def texts(*values: Any) -> np.ndarray:
    """Return text; one text or list alone gives the shape."""
    found = np.array(values[0] if len(values) == 1 else values, object)
    return np.array([value.encode() if isinstance(value, str) else value for value in found.flat], object).reshape(
        found.shape
    )


KINKS: Final = [-INF, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, INF, NAN]
"""Where functions of one number have their kinks and bounds."""

ORDINARY: Final = [-3.0, -2.0, -1.25, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1.25, 2.0, 3.0]
"""Where they have none, as many."""

_NAMES: Final[dict[str, Any]] = {
    "np": np,
    "inf": INF,
    "nan": NAN,
    "grid": grid,
    "line": line,
    "positive": positive,
    "ints": ints,
    "places": places,
    "bools": bools,
    "texts": texts,
    "typed": typed,
    "KINKS": KINKS,
    "ORDINARY": ORDINARY,
}


class Case(NamedTuple):
    """An expression, what it is given, and how it is compared."""

    text: str
    expression: str
    inputs: dict[str, str]
    dtypes: tuple[str, ...]
    options: dict[str, str]

    @property
    def name(self) -> str:
        """The operation it is about: the first that the expression names."""
        found = re.search(r"\btf(\.\w+)+", self.expression)
        return found.group() if found else self.expression

    @property
    def order(self) -> int:
        """How many times it is differentiated."""
        return int(self.options.get("order", 2))

    @property
    def raises(self) -> bool:
        """Whether TensorFlow refuses it."""
        return "raises" in self.options


def _options(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in text.split())}


def _case(text: str, defaults: Mapping[str, str]) -> Case:
    body, _, own = text.partition(" ; ")
    expression, *inputs = (part.strip() for part in re.split(r" \| (?=\w+(?::var)? = )", body))
    pairs = [(name.strip(), value.strip()) for name, _, value in (each.partition("=") for each in inputs)]
    found = _options(own)
    dtypes = tuple(name for name in DTYPES if name in found)
    options = {**defaults, **{name: value for name, value in found.items() if name not in DTYPES}}
    given = dtypes or tuple(name for name in DTYPES if name in defaults) or _DEFAULTS
    options = {name: value for name, value in options.items() if name not in DTYPES}
    if "raises" in options:
        given = given[:1]
    case = Case(
        " | ".join([expression, *(" = ".join(pair) for pair in pairs)]), expression, dict(pairs), given, options
    )
    varies = any(_varies(value) for value in _values(case).values())
    return case if varies else case._replace(dtypes=("as given",))


def _values(case: Case) -> dict[str, Any]:
    return {name: eval(text, dict(_NAMES)) for name, text in case.inputs.items()}


def _varies(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.dtype == np.float64


def areas() -> list[str]:
    """Return the names of the files of cases."""
    return sorted(file.stem for file in (FOLDER / "cases").glob("*.txt"))


def _spelled_out(text: str) -> list[str]:
    several = re.search(r"<(\w+(?: \w+)+)>", text)
    if several is None:
        return [text]
    return [text.replace(several.group(), name) for name in several.group(1).split()]


@functools.cache
def cases(area: str) -> list[Case]:
    """Return the cases of a file."""
    found, defaults = [], {}
    for raw in (FOLDER / "cases" / f"{area}.txt").read_text(encoding="utf-8").splitlines():
        text = re.split(r"(?:^|\s+)# ", raw, maxsplit=1)[0].strip()
        if text.startswith("="):
            defaults = _options(text[1:])
        elif text and text != "#":
            found += [_case(each, defaults) for each in _spelled_out(text)]
    repeated = {case.text for case in found if [each.text for each in found].count(case.text) > 1}
    assert not repeated, f"{area}: twice: {repeated}"
    return found


def given(case: Case, dtype: str) -> dict[str, np.ndarray]:
    """Return the inputs as NumPy's arrays; those that vary in this dtype."""
    found = {}
    for name, value in _values(case).items():
        kind = _numpy_dtype(dtype) if _varies(value) and dtype != "as given" else None
        found[name] = np.asarray(value, kind) if kind is not None else np.asarray(value)
    return found


_NAMESPACES: Final = """
    tf tf.math tf.math.special tf.nn tf.linalg tf.sparse tf.bitwise tf.image tf.strings tf.random tf.debugging tf.signal
    tf.keras.activations tf.keras.losses tf.keras.regularizers tf.keras.constraints tf.keras.initializers
    tf.keras.backend tf.compat.v1
"""
NAMESPACES: Final = _NAMESPACES.split()
"""Where operations are."""

WITH_PARAMETERS: Final = [
    name for name in NAMESPACES if not name.startswith("tf.keras") or name == "tf.keras.backend" if ".v1" not in name
]
"""Where they have TensorFlow's parameters. Keras's objects are Keras 3's; many of TensorFlow 1's had two names."""


def parameters(function: Callable[..., Any]) -> str:
    """Return a function's parameters and their defaults, so far as text can say them: `x axis=None`."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if default is parameter.empty or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            text = ""
        else:
            text = f"={default!r}" if isinstance(default, str | int | float | None) else "=..."
        found.append(f"{'*' if parameter.kind == parameter.VAR_KEYWORD else ''}{parameter.name}{text}")
    return " ".join(found)


# ---------------------------------------------------------------------------------------------------------------------
# Running a case
# ---------------------------------------------------------------------------------------------------------------------


def is_floating(value: Any) -> bool:
    """Whether a value is a tensor or an array that has derivatives."""
    dtype = getattr(value, "dtype", None)
    name = str(getattr(dtype, "name", dtype))
    return name.startswith(("float", "bfloat", "complex")) and hasattr(value, "shape")


def leaves(value: Any) -> Iterator[Any]:
    """Yield what lies in a structure, dicts in the order of their keys; of sparse tensors the parts."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from leaves(value[key])
    elif isinstance(value, list | tuple) and type(value).__name__ != "TensorShape":
        for part in value:
            yield from leaves(part)
    elif hasattr(value, "dense_shape"):  # a sparse tensor, or slices
        yield from (value.indices, value.values, value.dense_shape)
    else:
        yield value


def weights(shape: Sequence[int], dtype: Any, step: int) -> np.ndarray:
    """Return what an output's elements count, different for neighbours: small whole numbers, which all dtypes hold."""
    count = int(np.prod(shape))
    return (np.arange(count) % step + 1).reshape(tuple(shape)).astype(dtype)


def evaluate(tf: Any, case: Case, tensors: Mapping[str, Any]) -> Any:
    """Return what the expression is."""
    return eval(case.expression, {**_NAMES, "tf": tf, **tensors})


def made(tf: Any, case: Case, dtype: str) -> dict[str, Any]:
    """Return the inputs as tensors and variables."""
    found = {}
    for written, array in given(case, dtype).items():
        name, _, kind = written.partition(":")
        found[name] = tf.Variable(array) if kind == "var" else tf.constant(array)
    return found


def run(tf: Any, case: Case, dtype: str, dense: Callable[[Any], Any], within: Callable[..., Any] | None = None) -> Any:
    """Return (the values of an expression, its gradients by each floating input, their gradients), as tensors.

    Args:
        tf: TensorFlow, or `stratagem.tf`.
        case: The case.
        dtype: Of the inputs that vary.
        dense: Makes a tensor of a gradient.
        within: Calls a function of no arguments in another way than at once.
    """
    tensors = made(tf, case, dtype)

    def compute() -> Any:
        sources = [tensor for tensor in tensors.values() if is_floating(tensor)]
        if case.order == 0 or not sources:
            return list(leaves(evaluate(tf, case, tensors))), None, None
        outer = tf.GradientTape()
        with outer if case.order == 2 else contextlib.nullcontext():
            if case.order == 2:
                outer.watch(sources)
            with tf.GradientTape() as inner:
                inner.watch(sources)
                value = list(leaves(evaluate(tf, case, tensors)))
                targets = [leaf for leaf in value if is_floating(leaf)]
            if not targets:
                return value, [None] * len(sources), None
            first = _gradient(tf, inner, targets, sources, 3, dense)
        connected = [gradient for gradient in first if gradient is not None]
        if case.order == 1 or not connected:
            return value, first, None
        try:
            second = _gradient(tf, outer, connected, sources, 2, dense)
        except LookupError:  # TensorFlow has no derivative of this derivative
            second = None
        return value, first, second

    return compute() if within is None else within(compute)


def _gradient(tf: Any, tape: Any, targets: Any, sources: Any, step: int, dense: Callable[[Any], Any]) -> list[Any]:
    counts = [
        tf.constant(weights(tuple(target.shape), np.dtype(_numpy_dtype(_name(target))), step)) for target in targets
    ]
    return [None if g is None else dense(g) for g in tape.gradient(targets, sources, output_gradients=counts)]


def _name(value: Any) -> str:
    return str(getattr(value.dtype, "name", value.dtype))


# ---------------------------------------------------------------------------------------------------------------------
# Values as text
# ---------------------------------------------------------------------------------------------------------------------


def written(value: Any) -> Any:
    """Return a value as text: `float32[2,3]: 0 1 nan ...`, or what Python writes of it."""
    if hasattr(value, "to_list"):  # a ragged tensor
        return f"list: {value.to_list()!r}"
    if isinstance(value, bytes):
        return f"string[]: {value!r}"
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return repr(value)
    array = np.asarray(value)
    sizes = ",".join(map(str, array.shape))
    if array.dtype == object or array.dtype.kind in "SU":
        return f"string[{sizes}]: {array.tolist()!r}"
    return f"{array.dtype.name}[{sizes}]: {' '.join(map(_number, array.ravel()))}"


def _number(value: Any) -> str:
    if value.dtype == np.bool_:
        return "1" if value else "0"
    text = str(value).replace("(", "").replace(")", "")
    return text.removesuffix(".0")


def read(text: str) -> Any:
    """Return a value of `written`: an array, or the text itself where it is none."""
    found = re.match(r"(\w+)\[([\d,]*)\]: ?(.*)", text, re.DOTALL)
    if found is None:
        return text
    kind, sizes, body = found.groups()
    shape = tuple(int(size) for size in sizes.split(",") if size)
    if kind == "string":
        return np.array([eval(body)], object).reshape(shape) if not shape else _texts(eval(body), shape)
    dtype = _numpy_dtype(kind)
    numbers = [complex(part) if dtype.kind == "c" else float(part) for part in body.split()]
    if dtype.kind in "iu":
        return np.array([int(part) for part in body.split()], dtype).reshape(shape)
    return np.array(numbers).astype(dtype).reshape(shape)


def _texts(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    made = np.empty(shape, object)
    for place in np.ndindex(shape):
        value = values
        for step in place:
            value = value[step]
        made[place] = value
    return made
