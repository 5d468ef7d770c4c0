"""Migrate one TensorFlow program: its findings, and its new text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from stratagem.migrate import calls, changed_meaning, control_flow, imports, names, of_tensors
from stratagem.migrate.findings import Finding, Kind, Place
from stratagem.migrate.guesses import is_dataset, is_model, is_no_int
from stratagem.migrate.modules import Presence, public_names
from stratagem.migrate.scopes import ScopedVisitor, dotted, scopes_of

Edit = Callable[[Any], Any]
"""Function that returns the new node for a node whose inner nodes are edited already."""

_FILE: Final = re.compile(r".*\.(keras|h5|hdf5)")
_BACKEND: Final = "KERAS_BACKEND"
_TENSORFLOW: Final = ("tensorflow", "tensorflow.compat.v2", "tensorflow.compat.v1", "stratagem.tf")


@dataclass(frozen=True)
class Program:
    """The result of migrating a program.

    Args:
        findings: The findings by kind, and within a kind in the order of the text.
        text: The new text; the old text if nothing changes.
    """

    findings: tuple[Finding, ...]
    text: str


def migrate(text: str) -> Program:
    r"""Return the findings about a TensorFlow program, and its text for `stratagem.tf`.

    A program that does not import TensorFlow stays as it is.

    Args:
        text: The program, as Python reads it.

    Raises:
        libcst.ParserSyntaxError: It is not Python.

    Example:
        >>> program = migrate("import tensorflow as tf\nlayer = tf.keras.layers.Dense(10)  # logits\n")
        >>> print(program.text, end="")
        import stratagem.tf as tf
        layer = tf.keras.layers.Dense(10)  # logits
        >>> program.findings[0].what
        'import tensorflow as tf -> import stratagem.tf as tf'
    """
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    reader = _Reader(wrapper.module, wrapper.resolve(PositionProvider))
    wrapper.module.visit(reader)
    if reader.has_tensorflow:
        reader.look_at_star_imports()
        reader.look_at_control_flow()
    return Program(reader.findings(), wrapper.module.visit(_Editor(reader.edits)).code if reader.edits else text)


class _Reader(ScopedVisitor):
    """Collects findings and edits, from the first line of a program to its last.

    Args:
        module: The program.
        positions: Where its nodes stand (libcst's `PositionProvider`).
    """

    def __init__(self, module: cst.Module, positions: Mapping[cst.CSTNode, Any]) -> None:
        super().__init__(scopes_of(module), module)
        self.edits: dict[cst.CSTNode, Edit] = {}
        self.has_tensorflow = imports.uses_tensorflow(module)
        self._module = module
        self._positions = positions
        self._names = imports.names_used(module) if self.has_tensorflow else set()
        self._has_imported = False
        self._all_of: list[tuple[cst.ImportFrom, str]] = []
        self._free: set[str] = set()
        self._no_ints: set[str] = set()
        self._compiled: set[str | None] = set()
        self._places: dict[tuple[Kind, str, str], list[Place]] = {}

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings by kind, and within a kind in the order of the text."""
        kinds = list(Kind)
        found = [Finding(*key, tuple(sorted(places))) for key, places in self._places.items()]
        return tuple(sorted(found, key=lambda finding: (kinds.index(finding.kind), finding.places)))

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            self._imported(dotted(alias.name), alias)
        if self.has_tensorflow and (new := imports.new_import(node)) is not None:
            self._rewrite(node, new)
        return False

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        match node.body:
            case [cst.ImportFrom() as only] if self.has_tensorflow and imports.is_idle(only, self._names):
                self.edits[node] = lambda _: cst.RemovalSentinel.REMOVE
                self._note(Kind.REWRITE, f"{self._code(only)} -> (nothing)", "The program uses nothing from it.", only)
                return False
        return True

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if node.relative or node.module is None:
            return False
        module = dotted(node.module)
        new = imports.new_import_from(node) if self.has_tensorflow else None
        if isinstance(node.names, cst.ImportStar):
            if (name := self._canonical_name(module)) is not None:
                self._all_of.append((node, name))
            return False
        for alias in node.names:
            self._imported(f"{module}.{dotted(alias.name)}", alias, is_rewritten=new is not None)
        if new is not None:
            self._rewrite(node, new)
        return False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if not self._used(node):
            self._look_at_tensor(node)
            node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self._used(node)
        if self.scope.holder(node.value) is None:
            self._free.add(node.value)

    def visit_AssignTarget(self, node: cst.AssignTarget) -> bool:
        return not isinstance(node.target, cst.Name)  # to make an alias is no use of it

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False  # the name of an argument is no name of the program's

    def visit_Call(self, node: cst.Call) -> None:
        if not self.has_tensorflow:
            return
        self._look_at_tensor(node)
        function = next(map(names.without_version, self._canonical(node.func)), None)
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) and function is None else ""
        self._look_at_arguments(node, function, method)
        if isinstance(node.func, cst.Attribute) and method:
            self._look_at_method(node, node.func)
        self._look_at_computed_names(node, function)
        self._compiled.add(control_flow.compiled_by(node, self.scope))

    def visit_Assign(self, node: cst.Assign) -> None:
        target = node.targets[0].target
        if isinstance(target, cst.Attribute) and is_no_int(node.value, self.scope, self._no_ints):
            self._no_ints.add(target.attr.value)
        if self.has_tensorflow and isinstance(target, cst.Subscript) and dotted(target.value).endswith("environ"):
            index = target.slice[0].slice
            if isinstance(index, cst.Index):
                self._look_at_backend(index.value, node.value)

    def look_at_control_flow(self) -> None:
        """Note each `if` and loop on the value of a tensor that is not rewritten where functions are compiled."""
        for function in control_flow.compiled_functions(self._compiled, self.scopes):
            for statement, test in control_flow.tests_of_tensors(function, self.scopes):
                keyword = type(statement).__name__.lower()
                what = f"{keyword} {self._code(test)}"
                self._note(Kind.UNKNOWN, what, control_flow.advice(statement, self._code(test)), test)

    def look_at_star_imports(self) -> None:
        """Let `from module import *` name what the program uses: names in tables are looked up when they are named."""
        for node, name in self._all_of:
            used = sorted(self._free & public_names(f"stratagem.{name}"))
            for each in used:
                self._note_name(f"{name}.{each}", node)
            if used:
                new = imports.named_import(node, used)
                self._rewrite(node, new, "`stratagem.tf` loads only names that a program writes out.")
            elif (bare := imports.bare_import(node)) is not None:
                self._rewrite(node, bare, "The program uses nothing from it.")
            else:
                self._note_name(name, node)

    def _imported(self, module: str, node: cst.CSTNode, *, is_rewritten: bool = True) -> None:
        """Note what is to be known of an imported module or name."""
        if (name := self._canonical_name(module)) is not None:
            self._has_imported = True
            if "." in name and (not is_rewritten or names.moved(name) is None):
                self._note_name(name, node)
            return
        package = module.partition(".")[0]
        if (text := changed_meaning.OTHER_PACKAGES.get(package)) is not None:
            self._note(Kind.UNKNOWN, package, text, node)
        elif package in changed_meaning.KERAS_PACKAGES and self.has_tensorflow and not self._has_imported:
            self._note(Kind.UNKNOWN, package, changed_meaning.KERAS_FIRST, node)

    def _used(self, node: cst.Attribute | cst.Name) -> bool:
        """Note the use of a name of TensorFlow; return whether it is one."""
        found = self._canonical(node)
        if not found:
            return False
        name = next((n for n in found if names.is_there(n) is not Presence.ABSENT), found[0])
        if "." not in name:
            return True
        new = names.moved(name)
        if new is None or not isinstance(node, cst.Attribute) or not self._rename(node, name, new):
            self._note_name(name, node)
        return True

    def _rename(self, node: cst.Attribute, name: str, new: str) -> bool:
        """Write a name at its new place; return whether that can be done from what the program has imported."""
        root: cst.BaseExpression = node
        while isinstance(root, cst.Attribute):
            root = root.value
        prefix = next(iter(self._canonical(root)), None)
        if prefix is None or not new.startswith(f"{prefix}."):
            return False
        code = dotted(root) + new.removeprefix(prefix)
        there = cst.parse_expression(code)
        self._rewrite(node, there)
        return True

    def _note_name(self, name: str, node: cst.CSTNode) -> None:
        if names.is_there(name) is Presence.ABSENT:
            self._note(Kind.MISSING, name, names.repair(name), node)
        elif (meaning := changed_meaning.MEANINGS.get(names.without_version(name))) is not None:
            self._note(Kind.MEANING, name, meaning, node)
        else:
            self._note(Kind.WORKS, name, "", node)

    def _look_at_arguments(self, node: cst.Call, function: str | None, method: str) -> None:
        """Note arguments that are gone, or mean something else."""
        change = calls.change_of(function, method)
        if change is not None and (new := calls.changed(node, change)) is not node:
            self.edits[node] = lambda updated: calls.changed(updated, change)
            self._note(Kind.REWRITE, calls.difference(node, new), change.why, node)
        count = None if function is None else calls.counting_argument(node, function)
        if count is not None and is_no_int(count.value, self.scope, self._no_ints):
            self._rewrite(count.value, _whole(count.value), "Keras 3 accepts only numbers of type int.")
            self.edits[count.value] = _whole
        for argument in node.args:
            keyword = "" if argument.keyword is None else argument.keyword.value
            if function is not None and (text := calls.gone_argument(function, keyword)) is not None:
                self._note(Kind.MISSING, f"{function}({keyword}=)", text, argument)
            text = changed_meaning.ARGUMENTS.get((f".{method}" if method else function or "", keyword))
            if text is not None and self._code(argument.value) not in ("None", "False"):
                self._note(Kind.MEANING, f"{method or function}({keyword}=)", text, argument)

    def _look_at_method(self, node: cst.Call, function: cst.Attribute) -> None:
        """Note methods that are gone, operations on datasets, and models that are saved as a folder."""
        method = function.attr.value
        if method in calls.GONE_METHODS:
            self._note(Kind.MISSING, f".{method}()", calls.GONE_METHODS[method], function.attr)
        elif is_dataset(function.value, self.scope):
            self._note_name(f"tf.data.Dataset.{method}", function.attr)
        elif method == "save" and is_model(function.value) and node.args:
            path = node.args[0].value
            if isinstance(path, cst.SimpleString) and not _FILE.fullmatch(str(path.evaluated_value)):
                what = f"{self._code(function)}({path.value})"
                self._note(Kind.MEANING, what, changed_meaning.FOLDER, function.attr)

    def _look_at_tensor(self, node: cst.Attribute | cst.Call) -> None:
        """Let what is asked of dtypes and shapes be asked of NumPy's dtypes and of tuples."""
        if not self.has_tensorflow:
            return
        tensorflow = self.scope.name_of(_TENSORFLOW)
        edit = of_tensors.in_both(node, self.scope, tensorflow or "tf")
        if edit is None:
            return
        new = edit(node)
        if tensorflow is None and isinstance(new, cst.Attribute):
            text = f"Write {self._code(new)}, with `import stratagem.tf as tf`. {of_tensors.WHY}"
            self._note(Kind.MISSING, self._code(node), text, node)
        else:
            self._rewrite(node, new, of_tensors.WHY)
            self.edits[node] = edit

    def _look_at_computed_names(self, node: cst.Call, function: str | None) -> None:
        """Note names that the program makes up when it runs, and the backend that it asks for."""
        called = dotted(node.func)
        arguments = [argument.value for argument in node.args]
        if called == "getattr" and arguments and (found := self._canonical(arguments[0])):
            self._note(Kind.UNKNOWN, f"getattr({found[0]}, ...)", changed_meaning.COMPUTED, node)
        elif called in ("importlib.import_module", "import_module", "__import__") and arguments:
            name = arguments[0].evaluated_value if isinstance(arguments[0], cst.SimpleString) else ""
            if self._canonical_name(str(name)) is not None:
                self._note(Kind.UNKNOWN, self._code(node), changed_meaning.COMPUTED, node)
        elif called.endswith("environ.setdefault") and len(arguments) == 2:
            self._look_at_backend(*arguments)

    def _look_at_backend(self, variable: cst.BaseExpression, value: cst.BaseExpression) -> None:
        """Let `os.environ["KERAS_BACKEND"]` be JAX."""
        if not isinstance(variable, cst.SimpleString) or variable.evaluated_value != _BACKEND:
            return
        if isinstance(value, cst.SimpleString) and value.evaluated_value != "jax":
            new = value.with_changes(value=f"{value.prefix}{value.quote}jax{value.quote}")
            self._rewrite(value, new, f"{_BACKEND}: Stratagem runs Keras on JAX.")

    def _rewrite(self, node: cst.CSTNode, new: cst.CSTNode, why: str = "") -> None:
        """Let a node be another one, and note it."""
        self.edits[node] = lambda _: new
        old, code = (textwrap.shorten(self._code(each), 80, placeholder=" ...") for each in (node, new))
        self._note(Kind.REWRITE, f"{old} -> {code}", why, node)

    def _canonical(self, expression: cst.BaseExpression) -> list[str]:
        """Return the names of TensorFlow that an expression may stand for."""
        found = (self._canonical_name(name) for name in self.scope.full_names(expression))
        return [name for name in found if name is not None]

    def _canonical_name(self, name: str) -> str | None:
        is_plain_keras = names.package_of(name) == "keras" and not self.has_tensorflow
        return None if is_plain_keras else names.canonical(name)

    def _code(self, node: cst.CSTNode) -> str:
        return self._module.code_for_node(node)

    def _note(self, kind: Kind, what: str, text: str, node: cst.CSTNode) -> None:
        """Note a finding about a node; what is said twice becomes one finding with two places."""
        start = self._positions[node].start
        place = Place(start.line, start.column + 1)
        places = self._places.setdefault((kind, what, text), [])
        if place not in places:
            places.append(place)


def _whole(value: cst.BaseExpression) -> cst.Call:
    """Return `int(value)`."""
    return cst.Call(cst.Name("int"), [cst.Arg(value)])


class _Editor(cst.CSTTransformer):
    """Makes the edits, the innermost first."""

    def __init__(self, edits: dict[cst.CSTNode, Edit]) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        edit = self._edits.get(original_node)
        return updated_node if edit is None else edit(updated_node)
