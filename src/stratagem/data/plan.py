"""Plan of a dataset as text: what its steps do, equal in all processes that make the same dataset.

Workers divide one order of examples among them. Where one worker's dataset has another batch size or another function,
they train on a mixture; so they compare these lines.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any, Final

import numpy as np

from stratagem.data.dataset import Dataset
from stratagem.data.files.source import FileStep
from stratagem.data.nodes import Node, walk
from stratagem.data.options import AutoShardPolicy
from stratagem.data.sharding.digests import row_digests
from stratagem.data.sources import Indexed
from stratagem.data.structure import flatten, is_composite
from stratagem.data.transforms import name_of

_NOT_PLANNED: Final = frozenset(
    {"self", "inner", "source", "path", "paths", "files", "seed", "parallel_calls", "in_order"}
)
"""Arguments of steps that are described otherwise, come from the chief, or depend on a machine's cores or disks."""


def plan_of(dataset: Dataset) -> dict[str, str]:
    """Return what workers must have in common of a dataset that they share, by step.

    Args:
        dataset: The dataset. Of one with AutoShardPolicy.OFF each worker may bring its own.

    Example:
        >>> plan_of(Dataset.range(10).shuffle(10).batch(4))["step 2, Batched"]
        'size=4 drop_remainder=False'
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy
    steps = () if policy is AutoShardPolicy.OFF else enumerate(walk(dataset._node))
    lines = {f"step {place}, {type(step).__name__}": " ".join(_facts(step)) for place, step in steps}
    return {"auto_shard_policy": policy.name, **lines}


def _facts(step: Node) -> Iterator[str]:
    if isinstance(step, FileStep):
        # Folders may have other names on other machines.
        yield f"{len(step.paths)} files {_hash(os.path.basename(path) for path in step.paths)}"
    elif isinstance(step, Indexed):
        yield f"{len(step.source)} elements"
        if step.source.in_memory and len(step.source):
            columns, _ = flatten(step.source.take(np.array([0, len(step.source) - 1])))
            arrays = [column.dense() if is_composite(column) else np.asarray(column) for column in columns]
            yield f"of {_hash(f'{digest:016x}' for digest in row_digests(arrays))}"
    yield from _settings(step)


def _settings(thing: Any) -> Iterator[str]:
    """Yield what an object of ours was made with, as far as it says something in every process."""
    known = vars(thing)
    for name in inspect.signature(type(thing).__init__).parameters:
        kept = next((key for key in (name, f"_{name}", f"row_{name}") if key in known), None)
        if kept is not None and name not in _NOT_PLANNED:
            yield f"{name}={_setting(known[kept])}"


def _setting(value: Any) -> str:
    if isinstance(value, bool | int | float | str) or value is None:
        return str(value)
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_setting, value))})"
    if type(value).__module__.startswith("stratagem.data.") and hasattr(value, "__dict__"):
        return f"{type(value).__name__}({' '.join(_settings(value))})"
    return _function(value) if callable(value) else type(value).__name__


def _function(function: Callable[..., Any]) -> str:
    """Return the name of a function and a digest of its code.

    What it refers to is left out: a number or a path may be that of one process, and change nothing.
    """
    if isinstance(function, functools.partial):
        return _function(function.func)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return getattr(function, "__name__", type(function).__qualname__)
    return f"{name_of(function)} {_hash(_instructions(code))}"


def _instructions(code: CodeType) -> Iterator[str]:
    """Yield the code of a function and of those inside it, without the names of files."""
    yield code.co_code.hex()
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        elif not isinstance(constant, frozenset):  # has its strings in another order in each process
            yield repr(constant)


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
