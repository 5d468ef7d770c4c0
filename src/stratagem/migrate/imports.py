"""Changes of import statements."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst import matchers

from stratagem.migrate.modules import Presence
from stratagem.migrate.names import canonical, is_there, moved, package_of
from stratagem.migrate.scopes import dotted


def uses_tensorflow(module: cst.Module) -> bool:
    """Return whether a program imports TensorFlow or a replacement for it; plain Keras does not count.

    Example:
        >>> uses_tensorflow(cst.parse_module("import os, tensorflow as tf"))
        True
        >>> uses_tensorflow(cst.parse_module("from keras import layers"))
        False
    """
    names: list[str] = []
    for node in matchers.findall(module, matchers.Import() | matchers.ImportFrom()):
        match node:
            case cst.Import(names=aliases):
                names += [dotted(alias.name) for alias in aliases]
            case cst.ImportFrom(relative=[], module=cst.BaseExpression() as package, names=aliases):
                names.append(dotted(package))
                if not isinstance(aliases, cst.ImportStar):
                    names += [f"{names[-1]}.{dotted(alias.name)}" for alias in aliases]
    return not {package_of(name) for name in names}.isdisjoint({"tensorflow", "stratagem.tf", "tf_keras"})


class _Names(cst.CSTVisitor):
    """Collects the names that a program uses, other than to import them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self.found.add(node.value)


def names_used(module: cst.Module) -> set[str]:
    r"""Return the names that a program uses, other than to import them.

    Example:
        >>> sorted(names_used(cst.parse_module("from a import b, c\nprint(b.d)")))
        ['b', 'd', 'print']
    """
    names = _Names()
    module.visit(names)
    return names.found


def is_idle(node: cst.ImportFrom, used: set[str]) -> bool:
    """Return whether an import has only names of TensorFlow's private modules that do not exist here and are not used.

    Editors add such imports automatically: `from tensorflow.python.ops.gen_math_ops import Add`.

    Args:
        node: The import.
        used: The names that the program uses.
    """
    if node.relative or node.module is None or isinstance(node.names, cst.ImportStar):
        return False
    module = canonical(dotted(node.module)) or ""
    for alias in node.names:
        bound = alias.name if alias.asname is None else alias.asname.name
        name = f"{module}.{dotted(alias.name)}"
        if not module.startswith("tf.python.") or moved(name) or is_there(name) is not Presence.ABSENT:
            return False
        if dotted(bound) in used:
            return False
    return True


def new_module(module: str) -> str | None:
    """Return the module to import instead of one of TensorFlow or Keras; None if the import does not change.

    Example:
        >>> new_module("tensorflow.keras.layers"), new_module("tensorflow.lite"), new_module("numpy")
        ('stratagem.tf.keras.layers', None, None)
    """
    name = canonical(module)
    if name is None or package_of(module) == "stratagem.tf":
        return None
    name = moved(name) or name
    return None if is_there(name) is Presence.ABSENT else f"stratagem.{name}"


def new_import(node: cst.Import) -> cst.Import | None:
    """Return an `import` statement with its new modules, or None if nothing changes."""
    aliases = [_new_alias(alias) for alias in node.names]
    if all(new is old for new, old in zip(aliases, node.names, strict=True)):
        return None
    return node.with_changes(names=aliases)


def _new_alias(alias: cst.ImportAlias) -> cst.ImportAlias:
    """Return one `module as name` of an import."""
    old = dotted(alias.name)
    if alias.asname is not None:
        new = new_module(old)
        return alias if new is None else alias.with_changes(name=cst.parse_expression(new))
    # `import tensorflow.keras.layers` binds `tensorflow`, from which the program goes on.
    top = old.partition(".")[0]
    new = new_module(top)
    if new is None or new_module(old) is None:
        return alias
    return alias.with_changes(name=cst.parse_expression(new), asname=cst.AsName(cst.Name(top)))


def new_import_from(node: cst.ImportFrom) -> cst.ImportFrom | None:
    """Return a `from ... import` statement with its new module, or None if nothing changes."""
    if node.relative or node.module is None:
        return None
    new = new_module(dotted(node.module)) or _common_module(node)
    return None if new is None else node.with_changes(module=cst.parse_expression(new))


def named_import(node: cst.ImportFrom, names: Sequence[str]) -> cst.ImportFrom:
    """Return `from module import *` with its new module, and the names that are used instead of `*`."""
    aliases = [cst.ImportAlias(cst.Name(name)) for name in names]
    return (new_import_from(node) or node).with_changes(names=aliases)


def bare_import(node: cst.ImportFrom) -> cst.Import | None:
    """Return `import module` for a `from module import *` whose names are not used; None without such a module."""
    new = None if node.module is None else new_module(dotted(node.module))
    return (
        None
        if new is None
        else cst.Import([cst.ImportAlias(cst.ensure_type(cst.parse_expression(new), cst.Attribute))])
    )


def _common_module(node: cst.ImportFrom) -> str | None:
    """Return the one module that holds all imported names now; None if there is no such module."""
    if node.module is None or isinstance(node.names, cst.ImportStar):
        return None
    names = (canonical(f"{dotted(node.module)}.{dotted(alias.name)}") for alias in node.names)
    homes = {((name and moved(name)) or "").rpartition(".")[0] for name in names}
    home = homes.pop()
    return f"stratagem.{home}" if home and not homes else None
