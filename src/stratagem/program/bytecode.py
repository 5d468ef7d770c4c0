"""Reads of a function, found in its bytecode: which names it looks up, and which attributes it reads from them.

`self.model.layers[0](x) * config.rate` reads `layers` of `model` of `self`, an item of that, and `rate` of the global
name `config`. Such chains are told apart from attributes that merely have the same name elsewhere. A local variable
stands for the chain that was assigned to it. The object of any other attribute is not known: its name is `loose`.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

Chain = dict[str, Any]
"""The attributes that are read of something, each with the attributes that are read of it: {"model": {"layers": {}}}"""

ITEM: Final = "[]"
"""Stands in a chain for the items of a container."""

_LOADS_LOCAL: Final = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_AND_CLEAR"})
_LOADS_TWO: Final = frozenset({"LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"})
_LOADS_GLOBAL: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_LOADS_CELL: Final = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF"})
_READS_ATTRIBUTE: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR"})
_SUBSCRIPTS: Final = frozenset({"BINARY_SUBSCR", "BINARY_SLICE"})
_KEEPS_CHAIN: Final = frozenset({"GET_ITER", "COPY", "PUSH_NULL", "CACHE", "NOP", "RESUME", "TO_BOOL"})


@dataclass
class Reads:
    """The names that a function and the functions written inside it read.

    Args:
        globals: By global name, what is read of it.
        cells: By name of the enclosing function's variable, what is read of it.
        locals: By name of an argument or another variable of its own, what is read of it.
        modules: By name of a module that it imports, what is read of it.
        loose: Attributes of objects that are not known, and words that may name one (`getattr(x, "rate")`).
    """

    globals: dict[str, Chain] = field(default_factory=dict)
    cells: dict[str, Chain] = field(default_factory=dict)
    locals: dict[str, Chain] = field(default_factory=dict)
    modules: dict[str, Chain] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)


@functools.lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """Return the names that the code of a function reads; the same object for the same code.

    Example:
        >>> def step(self, x):
        ...     return self.model(x) * len(self.names)
        >>> reads = reads_of(step.__code__)
        >>> reads.locals["self"], list(reads.globals)
        ({'model': {}, 'names': {}}, ['len'])
    """
    reader = _Reader(code)
    for instruction in dis.get_instructions(code):
        reader.read(instruction.opname, instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            reader.add_inner(reads_of(constant))
        elif isinstance(constant, str) and constant.isidentifier():
            reader.reads.loose.add(constant)
    return reader.reads


def merge(into: Chain, chain: Chain) -> None:
    """Add a chain to another."""
    for name, below in chain.items():
        merge(into.setdefault(name, {}), below)


def words(chain: Chain) -> Iterator[str]:
    """Yield all attributes of a chain."""
    for name, below in chain.items():
        yield name
        yield from words(below)


class _Reader:
    """Goes through the instructions of one function, and knows which chain the value on top of the stack ends.

    Branches are read one after another, as they stand. Where the order of instructions is unusual a chain may be
    taken for loose, which costs precision and nothing else.
    """

    def __init__(self, code: CodeType) -> None:
        self.reads = Reads()
        self._free = frozenset(code.co_freevars)
        self._arguments = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        self._aliases: dict[str, Chain] = {}
        self._top: Chain | None = None
        self._below: Chain | None = None

    def read(self, operation: str, argument: Any) -> None:
        """Follow the next instruction."""
        if operation in _LOADS_GLOBAL:
            self._push(self.reads.globals.setdefault(argument, {}))
        elif operation in _LOADS_CELL:
            cells = self.reads.cells if argument in self._free else None
            self._push(self._local(argument) if cells is None else cells.setdefault(argument, {}))
        elif operation in _LOADS_LOCAL:
            self._push(self._local(argument))
        elif operation in _LOADS_TWO:
            for name in argument:
                self._push(self._local(name))
        elif operation == "STORE_FAST_LOAD_FAST":
            self._store(argument[0])
            self._push(self._local(argument[1]))
        elif operation in ("STORE_FAST", "STORE_DEREF"):
            self._store(argument)
        elif operation == "IMPORT_NAME":
            self._push(self.reads.modules.setdefault(argument, {}))
        elif operation == "LOAD_CONST":
            self._push(None)
        elif operation in _READS_ATTRIBUTE:
            self._attribute(argument)
        elif operation in _SUBSCRIPTS or (operation == "BINARY_OP" and argument == _SUBSCRIPT_OPERATION):
            self._top, self._below = self._item_of(self._below), None
        elif operation == "FOR_ITER":
            self._top = self._item_of(self._top)
        elif operation not in _KEEPS_CHAIN:
            self._top = self._below = None

    def add_inner(self, inner: Reads) -> None:
        """Add what a function written inside reads. Its cells are variables of this one, or of one around."""
        merge(self.reads.globals, inner.globals)
        merge(self.reads.modules, inner.modules)
        self.reads.loose |= inner.loose
        for name, chain in inner.cells.items():
            known = self.reads.cells.setdefault(name, {}) if name in self._free else self._local(name)
            if known is None:
                self.reads.loose.update(words(chain))
            else:
                merge(known, chain)
        for chain in inner.locals.values():
            self.reads.loose.update(words(chain))

    def _push(self, chain: Chain | None) -> None:
        self._below, self._top = self._top, chain

    def _local(self, name: str) -> Chain | None:
        if name in self._aliases:
            return self._aliases[name]
        return self.reads.locals.setdefault(name, {}) if name in self._arguments else None

    def _store(self, name: str) -> None:
        if self._top is not None:
            self._aliases[name] = self._top
        elif name in self._aliases:
            del self._aliases[name]
        self._top = None

    def _attribute(self, name: str) -> None:
        if self._top is None:
            self.reads.loose.add(name)
        else:
            self._top = self._top.setdefault(name, {})

    def _item_of(self, chain: Chain | None) -> Chain | None:
        return None if chain is None else chain.setdefault(ITEM, {})


_OPERATIONS: Final[list[tuple[str, str]]] = getattr(dis, "_nb_ops", [])
_SUBSCRIPT_OPERATION: Final = next((i for i, (name, _) in enumerate(_OPERATIONS) if name == "NB_SUBSCR"), None)
"""Since Python 3.14 a subscript is one of the binary operations."""
