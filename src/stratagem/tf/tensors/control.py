"""Control flow on tensors: `tf.cond`, `tf.while_loop`, `tf.map_fn`, `tf.scan`.

On known values these are Python's own; in compiled functions they become JAX's. Branches and bodies may assign
variables: the new values leave the branch with its results.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/cond and its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.program.branches import Branches
from stratagem.program.control import choose
from stratagem.program.loops import looped
from stratagem.program.tracing import is_traced
from stratagem.tf.tensors.operation import held, hosted, on_host, tensor


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, keras.Variable)


def _in_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose results are tensors."""
    return lambda *operands: jax.tree.map(tensor, function(*operands), is_leaf=_is_variable)


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: str | None = None) -> Any:
    """Call one of two functions and return its result (`tf.cond`).

    Args:
        pred: A boolean scalar.
        true_fn: The function to call if it is true.
        false_fn: The function to call if it is false. If a compiled function makes the choice, both must return tensors
            of the same shapes and dtypes.
        name: No effect.

    Example:
        >>> float(cond(tensor(2.0) > 1.0, lambda: 1.0, lambda: 0.0))
        1.0
    """
    pred = tensor(pred)
    if not is_traced(pred):
        return jax.tree.map(tensor, true_fn() if bool(pred) else false_fn(), is_leaf=_is_variable)
    return choose(pred, _in_tensors(true_fn), _in_tensors(false_fn))


def switch_case(
    branch_index: Any, branch_fns: Any, default: Callable[[], Any] | None = None, name: str = "switch_case"
) -> Any:
    """Call the function with a given number and return its result (`tf.switch_case`).

    Args:
        branch_index: The number of the function. Another number chooses the default.
        branch_fns: Functions, pairs of a number and a function, or a dict of them.
        default: The function for other numbers; None for the last.
        name: No effect.

    Example:
        >>> int(switch_case(1, [lambda: 10, lambda: 20]))
        20
    """
    pairs = branch_fns.items() if isinstance(branch_fns, Mapping) else branch_fns
    numbered = dict(pair if isinstance(pair, tuple) else (i, pair) for i, pair in enumerate(pairs))
    numbers = sorted(numbered)
    functions = [numbered[number] for number in numbers]
    last = functions[-1] if default is None else default
    index = tensor(branch_index)
    if not is_traced(index):
        return jax.tree.map(tensor, numbered.get(int(index), last)(), is_leaf=_is_variable)
    functions = [*functions, last]
    place = jnp.argmax(jnp.append(jnp.asarray(numbers) == index, True))
    branches = Branches([_in_tensors(function) for function in functions])
    runs = [lambda v, i=i: branches.run(i, v) for i in range(len(functions))]
    return branches.leave(jax.lax.switch(place, runs, branches.values()))


def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """Call the function of the first true condition and return its result (`tf.case`).

    Args:
        pred_fn_pairs: Pairs of a boolean and a function.
        default: The function if none is true; None for that of the last pair.
        exclusive: No effect: the first true condition counts.
        strict: No effect.
        name: No effect.
    """
    pairs = list(pred_fn_pairs)
    last: Callable[[], Any] = pairs.pop()[1] if default is None else default
    if not pairs:
        return jax.tree.map(tensor, last(), is_leaf=_is_variable)
    (pred, function), rest = pairs[0], pairs[1:]
    return cond(pred, function, lambda: case(rest, last))


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: Any = None,
    name: str | None = None,
) -> Any:
    """Call `body` on its own results while `cond` holds (`tf.while_loop`).

    Args:
        cond: Function of the loop's variables that returns a boolean.
        body: Function of the loop's variables that returns their new values, of the same shapes and dtypes.
        loop_vars: The first values of the variables: a list or tuple of tensors or structures.
        shape_invariants: No effect.
        parallel_iterations: No effect.
        back_prop: No effect.
        swap_memory: No effect.
        maximum_iterations: The greatest number of iterations. In a compiled function it makes gradients through the
            loop faster, but they take more memory: JAX keeps the values of each iteration. Without it, JAX computes
            them again.
        name: No effect.

    Returns:
        The last values, in the structure of `loop_vars`.

    Example:
        >>> [int(x) for x in while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s + i), (0, 0))]
        [4, 6]
    """
    start = jax.tree.map(tensor, tuple(loop_vars), is_leaf=_is_variable)

    def step(*values: Any) -> tuple[Any, ...]:
        result = body(*values)
        return tuple(result) if isinstance(result, list | tuple) else (result,)

    first = cond(*start)
    if not is_traced(first):
        result = _looped(cond, step, start, maximum_iterations)
    else:
        most = None if maximum_iterations is None else int(maximum_iterations)
        names = [f"loop_vars[{place}]" for place in range(len(start))]
        turn = _in_tensors(step)
        result = looped(lambda values: cond(*values), lambda values: turn(*values), names, start, most=most)
    return list(result) if isinstance(loop_vars, list) else result


def _looped(
    cond: Callable[..., Any], step: Callable[..., tuple[Any, ...]], values: tuple[Any, ...], most: Any
) -> tuple[Any, ...]:
    count = 0
    while (most is None or count < int(most)) and bool(cond(*values)):
        values, count = jax.tree.map(tensor, step(*values), is_leaf=_is_variable), count + 1
    return values


def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """Return the stacked results of a function for each element along the first axis (`tf.map_fn`).

    Args:
        fn: Function of one element.
        elems: A tensor, or a structure of tensors of equal length.
        dtype: The old name of `fn_output_signature`.
        parallel_iterations: No effect.
        back_prop: No effect.
        swap_memory: No effect.
        infer_shape: No effect.
        name: No effect.
        fn_output_signature: The dtypes of the results, as a structure of them.

    Example:
        >>> map_fn(lambda x: x * x, [1, 2, 3]).tolist()
        [1, 4, 9]
    """
    rows = _rows(elems)
    if on_host(*jax.tree.leaves(rows)):
        count = len(jax.tree.leaves(rows)[0])
        results = [fn(jax.tree.map(lambda row, i=i: row[i], rows)) for i in range(count)]
        found = jax.tree.map(lambda *parts: hosted(np.stack(parts)), *results)
    else:
        found = jax.lax.map(lambda row: jax.tree.map(tensor, fn(row)), rows)
    kinds = dtype if fn_output_signature is None else fn_output_signature
    if kinds is None or len(jax.tree.leaves(kinds)) != len(jax.tree.leaves(found)):
        return found
    leaves = zip(jax.tree.leaves(found), jax.tree.leaves(kinds), strict=True)
    return jax.tree.unflatten(
        jax.tree.structure(found), [leaf.astype(held(getattr(kind, "dtype", kind))) for leaf, kind in leaves]
    )


def _rows(elems: Any) -> Any:
    return tensor(elems) if isinstance(elems, list) else jax.tree.map(tensor, elems, is_leaf=_is_variable)


def vectorized_map(fn: Callable[[Any], Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """Return the results of a function for all elements along the first axis at once (`tf.vectorized_map`)."""
    return jax.vmap(lambda row: jax.tree.map(tensor, fn(row)))(jax.tree.map(jnp.asarray, _rows(elems)))


def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Return all intermediate results of a function that carries its result along the first axis (`tf.scan`).

    Args:
        fn: Function of the carried value and an element that returns the next carried value.
        elems: A tensor, or a structure of tensors of equal length.
        initializer: The first carried value; None for the first element.
        parallel_iterations: No effect.
        back_prop: No effect.
        swap_memory: No effect.
        infer_shape: No effect.
        reverse: Whether to start at the end.
        name: No effect.

    Example:
        >>> scan(lambda total, x: total + x, [1, 2, 3]).tolist()
        [1, 3, 6]
    """
    rows = jax.tree.map(jnp.asarray, _rows(elems))
    first = -1 if reverse else 0
    carried = jax.tree.map(lambda row: row[first], rows) if initializer is None else _rows(initializer)
    carried = jax.tree.map(jnp.asarray, carried)
    rest = rows
    if initializer is None:
        rest = jax.tree.map(lambda row: row[:-1] if reverse else row[1:], rows)

    def step(before: Any, row: Any) -> tuple[Any, Any]:
        after = jax.tree.map(lambda new, old: jnp.asarray(tensor(new), old.dtype), fn(before, row), before)
        return after, after

    _, found = jax.lax.scan(step, carried, rest, reverse=reverse)
    if initializer is not None:
        return found
    ends = (lambda f, c: jnp.concatenate([f, c[None]])) if reverse else (lambda f, c: jnp.concatenate([c[None], f]))
    return jax.tree.map(ends, found, carried)


def foldl(fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None, **options: Any) -> Any:
    """Return the last result of a function that carries its result along the first axis (`tf.foldl`)."""
    return jax.tree.map(lambda found: found[-1], scan(fn, elems, initializer))


def foldr(fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None, **options: Any) -> Any:
    """Return the last result of a function that carries its result backwards (`tf.foldr`)."""
    return jax.tree.map(lambda found: found[0], scan(fn, elems, initializer, reverse=True))
