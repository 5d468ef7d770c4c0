"""Names of modules, read from tables and source files: loading JAX and Keras would take seconds."""

from __future__ import annotations

import ast
import enum
import functools
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stratagem.tf.names import has_table, names_of


class Presence(enum.Enum):
    """Whether a module has a name."""

    PRESENT = enum.auto()
    ABSENT = enum.auto()
    UNKNOWN = enum.auto()
    """The files do not show it: an attribute of a value, a class with a base from elsewhere."""


@dataclass(frozen=True)
class Module:
    """The names of a module.

    Args:
        imported: Where each name that is imported or listed in a table is defined: `package.module:name`, or a module;
            empty if this depends, for example, on the backend.
        defined: The classes, functions and variables that the module defines.
        behind: Modules whose names this module has too.
    """

    imported: Mapping[str, str]
    defined: Mapping[str, ast.stmt]
    behind: tuple[str, ...] = ()


def presence(module: str, path: Iterable[str]) -> Presence:
    """Return whether a module has a name, or a name inside one of its names.

    Args:
        module: The module: `stratagem.tf`.
        path: The name, and the names inside it: `("data", "Dataset", "range")`.

    Example:
        >>> presence("stratagem.data", ["Dataset", "from_tensor_slices"])
        <Presence.PRESENT: 1>
        >>> presence("stratagem.data", ["Dataset", "from_tensr_slices"])
        <Presence.ABSENT: 2>
    """
    head, *rest = path
    found = _home(module, head)
    if isinstance(found, Presence):
        return Presence.UNKNOWN if rest and found is Presence.PRESENT else found
    if not rest:
        return Presence.PRESENT
    if isinstance(found, str):
        return presence(found, rest)
    holder, statement = found
    return _in_class(holder, statement, rest) if isinstance(statement, ast.ClassDef) else Presence.UNKNOWN


def public_names(module: str) -> set[str]:
    """Return the public names that the files show for a module; an empty set if there is no such module."""
    content = read(module)
    if content is None:
        return set()
    behind = [public_names(other) for other in content.behind]
    return {name for name in set().union(content.imported, content.defined, *behind) if not name.startswith("_")}


def constant(module: str, name: str) -> Any:
    """Return a constant of a module that is written as a literal; None if the module has no such constant."""
    content = read(module)
    statement = None if content is None else content.defined.get(name)
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    return None if value is None else ast.literal_eval(value)


@functools.cache
def _home(module: str, name: str) -> str | tuple[str, ast.stmt] | Presence:
    """Return the module that a name stands for, or where it is defined and how; otherwise whether it is there."""
    content = read(module)
    if content is None:
        return Presence.UNKNOWN
    if name in content.imported:
        home, _, attribute = content.imported[name].partition(":")
        if not attribute:
            return home or Presence.PRESENT
        if (home, attribute) == (module, name):  # keras/__init__.py: `from keras import layers as layers`
            return f"{home}.{attribute}"
        found = _home(home, attribute)
        return Presence.PRESENT if isinstance(found, Presence) else found  # what is imported is there
    if name in content.defined:
        return module, content.defined[name]
    if _file(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    for other in content.behind:
        found = _home(other, name)
        if found is not Presence.ABSENT:
            return found
    return Presence.ABSENT


def _in_class(module: str, cls: ast.ClassDef, path: list[str]) -> Presence:
    """Return whether a class, or a base of it, has an attribute."""
    if path[0] in _bound(cls.body):
        return Presence.PRESENT if len(path) == 1 else Presence.UNKNOWN
    answers = set()
    for base in cls.bases:
        found = _home(module, base.id) if isinstance(base, ast.Name) else None
        if isinstance(found, tuple) and isinstance(found[1], ast.ClassDef):
            answers.add(_in_class(found[0], found[1], path))
        else:
            answers.add(Presence.ABSENT if ast.unparse(base) in _PLAIN_BASES else Presence.UNKNOWN)
    return next((p for p in (Presence.PRESENT, Presence.UNKNOWN) if p in answers), Presence.ABSENT)


_PLAIN_BASES: Final = {"object", "enum.Enum", "Enum", "enum.StrEnum", "StrEnum", "enum.IntEnum", "ABC", "abc.ABC"}
"""Bases from elsewhere that bring no name which a program would use on the class."""


@functools.cache
def read(module: str) -> Module | None:
    """Return the names of a module, or None if it has neither a table nor a file."""
    table = names_of(module) if has_table(module) else None
    file = _file(module)
    if table is None and (file is None or file.suffix != ".py"):
        return None
    body = [] if file is None else ast.parse(file.read_bytes()).body
    package = module if file is not None and file.name == "__init__.py" else module.rpartition(".")[0]
    imported: dict[str, str] = {}
    behind: list[str] = []
    for statement in _flat(body):
        _add_imports(statement, package, imported, behind)
    if table is not None:
        imported |= table.homes
        behind += [table.behind] if table.behind is not None else []
    return Module(imported, _bound(body), tuple(behind))


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those under `if` and `try` too."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try):
            yield from _flat(statement.body)
            yield from _flat(statement.orelse)
            if isinstance(statement, ast.Try):
                yield from _flat(inner for handler in statement.handlers for inner in handler.body)
        else:
            yield statement


def _add_imports(statement: ast.stmt, package: str, imported: dict[str, str], behind: list[str]) -> None:
    """Note what an import statement binds; the home is empty where another import binds the same name."""
    found: dict[str, str] = {}
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            top = alias.name.partition(".")[0]
            found[alias.asname or top] = alias.name if alias.asname else top
    elif isinstance(statement, ast.ImportFrom):
        base = importlib.util.resolve_name("." * statement.level + (statement.module or ""), package)
        behind += [base for alias in statement.names if alias.name == "*"]
        found = {alias.asname or alias.name: f"{base}:{alias.name}" for alias in statement.names if alias.name != "*"}
    for name, home in found.items():
        imported[name] = home if imported.get(name, home) == home else ""


def _bound(body: Iterable[ast.stmt]) -> dict[str, ast.stmt]:
    """Return the names that statements make, by class, function or assignment."""
    bound: dict[str, ast.stmt] = {}
    for statement in _flat(body):
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound[name] = statement
            case ast.Assign(targets=targets):
                bound |= {n.id: statement for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                bound[name] = statement
    return bound


@functools.cache
def _file(module: str) -> Path | None:
    """Return the file of a module, found without loading anything."""
    top, *parts = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    for part in parts:
        if path.name != "__init__.py":
            return None
        package, plain = path.parent / part / "__init__.py", path.parent / f"{part}.py"
        path = package if package.is_file() else plain
        if not path.is_file():
            return None
    return path
