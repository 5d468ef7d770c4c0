"""Find `if`, `while` and `for` on the values of tensors that stay Python code in functions that are compiled.

TensorFlow's AutoGraph turns them into operations of the graph; `program.rewriting` does so where they have no `raise`
and assign neither attributes nor items. Which expression is a tensor is a
guess: what functions of TensorFlow return, what is computed from it, and the arguments of the compiled function.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import libcst as cst
import libcst.matchers as m

from stratagem.migrate.names import canonical
from stratagem.migrate.scopes import Scope

_RETURNS_TENSOR: Final = re.compile(
    r"tf\.(reduce_\w+|logical_\w+|math\.\w+|linalg\.\w+|nn\.\w+|random\.\w+|equal|not_equal|less|less_equal|greater"
    r"|greater_equal|abs|square|sqrt|exp|argmax|argmin|cast|constant|convert_to_tensor|matmul|maximum|minimum|norm"
    r"|gather|where|squeeze|reshape|concat|stack|zeros|ones|zeros_like|ones_like|identity|sigmoid|tanh|pow|round)"
)
_COMPILERS: Final = {"run", "experimental_run_v2", "schedule"}
"""Methods (of strategies and coordinators) whose first argument is compiled."""
_STEPS: Final = {"call", "train_step", "test_step", "predict_step"}
"""Methods that `fit`, `evaluate` and `predict` compile."""
_KEPT: Final = (
    m.Raise(),
    *(m.AssignTarget(m.Attribute()), m.AssignTarget(m.Subscript())),
    *(m.AugAssign(m.Attribute()), m.AugAssign(m.Subscript())),
)
"""Parts of a statement for which it is not rewritten."""
_VALUES: Final = (cst.LessThan, cst.GreaterThan, cst.LessThanEqual, cst.GreaterThanEqual, cst.Equal, cst.NotEqual)


def compiled_by(call: cst.Call, scope: Scope) -> str | None:
    """Return the name of the function that a call passes on to be compiled; None for any other call."""
    compiles = isinstance(call.func, cst.Attribute) and call.func.attr.value in _COMPILERS
    if call.args and (compiles or _is_tf_function(call.func, scope)):
        match call.args[0].value:
            case cst.Name(value=name) | cst.Attribute(value=cst.Name(value="self"), attr=cst.Name(value=name)):
                return name
    return None


def compiled_functions(given: Collection[str | None], scopes: dict[cst.CSTNode, Scope]) -> Iterator[cst.FunctionDef]:
    """Yield the functions of a program that are compiled.

    They are under `tf.function`, given to `strategy.run`, or methods of a Keras class that `fit` compiles.

    Args:
        given: The names that `compiled_by` found.
        scopes: The scopes of the program.
    """
    for node, scope in scopes.items():
        if isinstance(node, cst.FunctionDef) and (
            node.name.value in given
            or any(_is_tf_function(d.decorator, scope) for d in node.decorators)
            or (node.name.value in _STEPS and _is_in_keras_class(scope))
        ):
            yield node


def tests_of_tensors(
    function: cst.FunctionDef, scopes: dict[cst.CSTNode, Scope]
) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """Yield the statements of a compiled function that use the value of a tensor and are not rewritten.

    Each comes with its condition.
    """
    found = _Tests(function, scopes)
    function.body.visit(found)
    yield from found.tests


def advice(statement: cst.CSTNode, condition: str) -> str:
    r"""Return what to write in place of a statement.

    Example:
        >>> advice(cst.If(cst.Name("x"), cst.IndentedBlock([])), "x > 0").splitlines()[1].strip()
        'value = tf.cond(x > 0, lambda: ..., lambda: ...)'
    """
    match statement:
        case cst.If():
            form = f"value = tf.cond({condition}, lambda: ..., lambda: ...)"
        case cst.For():
            form = "values = tf.while_loop(lambda i, *values: i < n, lambda i, *values: (i + 1, ...), (0, *values))"
        case _:
            form = f"values = tf.while_loop(lambda *values: {condition}, lambda *values: ..., values)"
    asks = "counts to" if isinstance(statement, cst.For) else "is"
    return (
        f"If `{condition}` {asks} a tensor, this cannot be compiled, because it contains a raise or an assignment to "
        f"an attribute or item. Remove these, or write:\n    {form}"
    )


class _Tests(cst.CSTVisitor):
    """Collects the statements that ask for the value of a tensor."""

    def __init__(self, function: cst.FunctionDef, scopes: dict[cst.CSTNode, Scope]) -> None:
        super().__init__()
        self._scope = scopes[function]
        parameters = [*function.params.posonly_params, *function.params.params, *function.params.kwonly_params]
        self._tensors = {p.name.value for p in parameters if p.default is None} - {"self", "cls", "training", "mode"}
        self._flags: set[str] = set()
        self.tests: list[tuple[cst.CSTNode, cst.BaseExpression]] = []

    def visit_Assign(self, node: cst.Assign) -> None:
        if not self._is_tensor(node.value) and not self._is_condition(node.value):
            return
        for target in node.targets:
            match target.target:
                case cst.Name(value=name):
                    self._tensors.add(name)
                    self._flags.add(name)
                case cst.Tuple(elements=elements):
                    self._tensors |= {e.value.value for e in elements if isinstance(e.value, cst.Name)}

    def visit_For(self, node: cst.For) -> None:
        match node.iter:
            case cst.Call(func=function, args=arguments) if any(self._is_tensor(a.value) for a in arguments):
                if "tf.range" in map(canonical, self._scope.full_names(function)):
                    self._note(node, node.iter)

    def visit_While(self, node: cst.While) -> None:
        if self._is_condition(node.test):
            self._note(node, node.test)

    def visit_If(self, node: cst.If) -> None:
        if self._is_condition(node.test):
            self._note(node, node.test)

    def _note(self, node: cst.If | cst.While | cst.For, test: cst.BaseExpression) -> None:
        """Note a statement, unless it is rewritten."""
        if any(m.findall(node, each) for each in _KEPT):
            self.tests.append((node, test))

    def _is_condition(self, node: cst.BaseExpression) -> bool:
        """Return whether the truth of an expression is that of a tensor."""
        match node:
            case cst.Comparison(left=left, comparisons=comparisons):
                sides = [left, *(c.comparator for c in comparisons)]
                return (
                    all(isinstance(c.operator, _VALUES) for c in comparisons)
                    and any(self._is_tensor(side) for side in sides)
                    and not any(_is_static(side) for side in sides)
                )
            case cst.BooleanOperation(left=left, right=right):
                return self._is_condition(left) or self._is_condition(right)
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                return self._is_condition(inner)
            case cst.Name(value=name):
                return name in self._flags
            case cst.Call(func=function):
                return self._returns_tensor(function)
        return False

    def _is_tensor(self, node: cst.BaseExpression) -> bool:
        match node:
            case cst.Name(value=name):
                return name in self._tensors
            case cst.BinaryOperation(left=left, right=right):
                return self._is_tensor(left) or self._is_tensor(right)
            case cst.UnaryOperation(expression=inner) | cst.Subscript(value=inner):
                return self._is_tensor(inner)
            case cst.Call(func=function):
                return self._returns_tensor(function)
        return False

    def _returns_tensor(self, function: cst.BaseExpression) -> bool:
        names = (canonical(name) for name in self._scope.full_names(function))
        return any(name is not None and _RETURNS_TENSOR.fullmatch(name) for name in names)


def _is_in_keras_class(scope: Scope) -> bool:
    """Return whether a function stands in a class that derives from one of Keras's."""
    holder = scope.parent
    if holder is None or not isinstance(holder.node, cst.ClassDef):
        return False
    bases = [name for base in holder.node.bases for name in holder.full_names(base.value)]
    return any((canonical(name) or "").startswith("tf.keras.") for name in bases)


def _is_static(node: cst.BaseExpression) -> bool:
    """Return whether a comparison with an expression says that both sides are plain Python."""
    return isinstance(node, cst.BaseString) or (isinstance(node, cst.Name) and node.value in ("None", "True", "False"))


def _is_tf_function(node: cst.BaseExpression, scope: Scope) -> bool:
    function = node.func if isinstance(node, cst.Call) else node
    return any(canonical(name) == "tf.function" for name in scope.full_names(function))
