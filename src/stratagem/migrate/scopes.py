"""Find the full names of expressions: follow imports and simple assignments by Python's rules of scope."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import libcst as cst

Binding = str | cst.BaseExpression | None
"""The binding of a name: a full name (by an import), an expression, or something else."""

_SCOPES: Final = (cst.FunctionDef, cst.ClassDef, cst.Lambda)


class Scope:
    """The names of a module, a class or a function."""

    def __init__(self, node: cst.CSTNode, parent: Scope | None) -> None:
        self.node = node
        self.parent = parent
        self.bindings: dict[str, list[Binding]] = {}
        self._under_way: set[str] = set()

    def bind(self, name: str, binding: Binding) -> None:
        """Note one more thing that a name is bound to."""
        self.bindings.setdefault(name, []).append(binding)

    def holder(self, name: str) -> Scope | None:
        """Return the scope that binds a name: this one, or an enclosing one that is not a class."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or not isinstance(scope.node, cst.ClassDef)):
                return scope
            scope = scope.parent
        return None

    def value_of(self, name: str) -> cst.BaseExpression | None:
        """Return the one expression that a name is assigned; None if it is bound in another way, or more than once."""
        holder = self.holder(name)
        bindings = [] if holder is None else holder.bindings[name]
        return bindings[0] if len(bindings) == 1 and isinstance(bindings[0], cst.BaseExpression) else None

    def name_of(self, modules: Container[str]) -> str | None:
        """Return a name that this scope can see and that one of some modules was imported as; None if there is none.

        Args:
            modules: Their full names.
        """
        scope: Scope | None = self
        while scope is not None:
            for name, bindings in scope.bindings.items():
                if all(isinstance(each, str) and each in modules for each in bindings) and self.holder(name) is scope:
                    return name
            scope = scope.parent
        return None

    def full_names(self, expression: cst.BaseExpression) -> tuple[str, ...]:
        """Return the full names that an expression may stand for, in the order of the imports.

        Two imports of one name (`try: import a as x` and `except: import b as x`) give two full names.
        """
        if isinstance(expression, cst.Attribute):
            return tuple(f"{name}.{expression.attr.value}" for name in self.full_names(expression.value))
        if not isinstance(expression, cst.Name):
            return ()
        name = expression.value
        holder = self.holder(name)
        if holder is None or name in holder._under_way:
            return ()
        imported = dict.fromkeys(binding for binding in holder.bindings[name] if isinstance(binding, str))
        value = self.value_of(name)
        if imported or value is None:
            return tuple(imported)
        holder._under_way.add(name)  # `x = x.y` in a loop of aliases
        try:
            return holder.full_names(value)
        finally:
            holder._under_way.discard(name)


class ScopedVisitor(cst.CSTVisitor):
    """Walks through a program and knows the scope it is in.

    Args:
        scopes: The scopes by the node that opens them, as `scopes_of` returns them.
        module: The whole program.
    """

    def __init__(self, scopes: dict[cst.CSTNode, Scope], module: cst.Module) -> None:
        super().__init__()
        self.scopes = scopes
        self.scope = scopes[module]

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Enter a scope before its node is visited."""
        if isinstance(node, _SCOPES):
            self.scope = self.scopes[node]
        return super().on_visit(node)

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """Leave a scope after its node was visited."""
        super().on_leave(original_node)
        if isinstance(original_node, _SCOPES) and self.scope.parent is not None:
            self.scope = self.scope.parent


def scopes_of(module: cst.Module) -> dict[cst.CSTNode, Scope]:
    """Return the scopes of a program, by the node that opens each, with the bindings of their names.

    Example:
        >>> program = cst.parse_module("import tensorflow as tf; layers = tf.keras.layers")
        >>> scopes_of(program)[program].full_names(cst.parse_expression("layers.Dense"))
        ('tensorflow.keras.layers.Dense',)
    """
    scopes: dict[cst.CSTNode, Scope] = {module: Scope(module, None)}
    module.visit(_Binder(scopes, module))
    return scopes


def dotted(node: cst.BaseExpression) -> str:
    """Return the text of a dotted name: `a.b.c`; empty for another expression."""
    match node:
        case cst.Name(value=name):
            return name
        case cst.Attribute(value=value, attr=attr) if left := dotted(value):
            return f"{left}.{attr.value}"
        case _:
            return ""


class _Binder(ScopedVisitor):
    """Makes the scopes, and collects what names are bound to."""

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Open scopes; what a definition is called belongs to the scope around it."""
        if isinstance(node, _SCOPES):
            if not isinstance(node, cst.Lambda):
                self.scope.bind(node.name.value, None)
            self.scopes[node] = Scope(node, self.scope)
        return super().on_visit(node)

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            name = dotted(alias.name)
            if alias.asname is not None:
                self.scope.bind(dotted(alias.asname.name), name)
            else:
                top = name.partition(".")[0]
                self.scope.bind(top, top)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if node.relative or node.module is None or isinstance(node.names, cst.ImportStar):
            return
        for alias in node.names:
            bound = alias.name if alias.asname is None else alias.asname.name
            self.scope.bind(dotted(bound), f"{dotted(node.module)}.{dotted(alias.name)}")

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._bind(target.target, node.value)

    def _bind_value(self, node: cst.AnnAssign | cst.NamedExpr) -> None:
        self._bind(node.target, node.value)

    visit_AnnAssign = visit_NamedExpr = _bind_value

    def _bind_target(self, node: cst.AugAssign | cst.For | cst.CompFor) -> None:
        self._bind(node.target, None)

    visit_AugAssign = visit_For = visit_CompFor = _bind_target

    def _bind_name(self, node: cst.AsName | cst.Param) -> None:
        self._bind(node.name, None)

    visit_AsName = visit_Param = _bind_name

    def visit_ImportAlias(self, node: cst.ImportAlias) -> bool:
        return False  # its AsName is bound to what is imported

    def _bind(self, target: cst.BaseExpression, value: cst.BaseExpression | None) -> None:
        match target:
            case cst.Name(value=name):
                self.scope.bind(name, value)
            case cst.Tuple(elements=elements) | cst.List(elements=elements):
                for element in elements:
                    self._bind(element.value, None)
            case cst.StarredElement(value=inner):
                self._bind(inner, None)
