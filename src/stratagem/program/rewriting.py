"""Rewriting of functions whose Python asks for the value of a tensor, as TensorFlow's AutoGraph does it.

A function is rewritten when the tracing of it has failed at a condition or a loop on a computed value, and the tracing
begins anew; what never fails is never touched. The source of the function becomes a syntax tree, in which `if`,
`while`, `for`, `and`, `or`, `not`, conditional expressions and `assert` call `program.control` and `program.loops`,
which decide at run time: Python values keep Python's control flow, computed ones become JAX's. Line numbers stay. The
new code takes the place of the function's own only while something is traced (`program.autograph`).

`break`, `continue` and `return` in a loop become conditions (`program.jumps`). What a branch or a loop cannot be when
its condition is computed is said by the error: assignments to attributes and items, `raise`.

Source of the semantics: https://www.tensorflow.org/guide/function#autograph_transformations
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, Final, TypeVar, cast

from stratagem.program import jumps
from stratagem.program.jumps import Flags

_Node = TypeVar("_Node", bound=ast.AST)

_CONTROL: Final = "stratagem_control"
_LOOPING: Final = "stratagem_loops"
"""The names of `program.control` and `program.loops` in a rewritten function."""

_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_HOLDERS: Final = (ast.With, ast.AsyncWith, ast.Try, ast.Match)
_FUTURE: Final = 0x1FF0000
"""The bits of a code's flags that `from __future__` sets."""


class CannotRewrite(Exception):
    """A function has no source, or is none that can be written anew; the message says why."""


def rewritten(code: CodeType) -> CodeType:
    """Return code that does what the code of a function does, also where conditions are computed.

    Raises:
        CannotRewrite: Its source cannot be read, or it is a lambda or a generator.
    """
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise CannotRewrite("it is a generator or a coroutine")
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        raise CannotRewrite("its source cannot be read") from None
    function = tree.body[0] if tree.body else None
    if not isinstance(function, ast.FunctionDef) or function.name != code.co_name:
        raise CannotRewrite("it is not written with def")
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    _FunctionRewriter(function).rewrite()
    first = 1 if ast.get_docstring(function) is not None else 0
    names = f"control as {_CONTROL}, loops as {_LOOPING}"
    imported = ast.parse(f"from stratagem.program import {names}").body[0]
    function.body.insert(first, _at(function, imported))
    module = ast.fix_missing_locations(_in_its_place(function, code))
    made = compile(module, code.co_filename, "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)
    found = next(inner for inner in codes_within(made) if inner.co_name == code.co_name)
    if found.co_freevars != code.co_freevars:
        raise CannotRewrite("its source does not show which names of the enclosing function it refers to")
    return found.replace(co_qualname=code.co_qualname)


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and those of the functions written inside it, from the outermost in."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)


def _in_its_place(function: ast.FunctionDef, code: CodeType) -> ast.Module:
    """Return a module with a function in a place like its own: the same free names, and private names of its class."""
    outer = ast.parse(f"def stratagem_enclosing({', '.join(code.co_freevars)}): pass")
    cast("ast.FunctionDef", outer.body[0]).body = [function]
    holder = code.co_qualname.rpartition(".")[0].rpartition(".")[2]
    if not holder or holder == "<locals>":
        return outer
    inside = ast.parse(f"class {holder}: pass")
    cast("ast.ClassDef", inside.body[0]).body = list(outer.body)
    return inside


def _at_own_level(nodes: Sequence[ast.AST], stop: tuple[type, ...] = _SCOPES) -> Iterator[ast.AST]:
    """Yield nodes and what is in them, but not what is in functions, nor in what else to stop at."""
    for node in nodes:
        yield node
        if not isinstance(node, stop):
            yield from _at_own_level(list(ast.iter_child_nodes(node)), stop)


def _has(nodes: Sequence[ast.AST], kinds: tuple[type, ...], stop: tuple[type, ...] = _SCOPES) -> bool:
    return any(isinstance(node, kinds) for node in _at_own_level(nodes, stop))


def _assigned(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the names that statements assign, in the order in which they do it."""
    stop = (*_SCOPES, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    names: dict[str, None] = {}
    for node in _at_own_level(nodes, stop):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] = None
            case ast.alias(name=name, asname=other):
                names[other or name.partition(".")[0]] = None
    return list(names)


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether nothing that follows statements is reached."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, ast.Return | ast.Raise)


def _refusal(nodes: Sequence[ast.AST]) -> str:
    """Return what statements do that they cannot where the condition is computed; nothing if all is well."""
    own = _assigned(nodes)
    for node in _at_own_level(nodes):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            return f"assigns `{ast.unparse(node)}`"
        if isinstance(node, ast.Raise):
            return "raises an error (write tf.debugging.Assert)"
        match node:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(id=name), "append" | "extend"))) if name not in own:
                return f"appends to the list `{name}`"
    return ""


def _call(name: str, *arguments: ast.expr, of: str = _CONTROL) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(of, ast.Load()), name, ast.Load()), list(arguments), [])


def _lambda(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(cast("ast.Lambda", ast.parse("lambda: 0", mode="eval").body).args, body)


def _function(name: str, parameters: Sequence[str], body: Sequence[ast.stmt]) -> ast.FunctionDef:
    made = cast("ast.FunctionDef", ast.parse(f"def {name}({', '.join(parameters)}): pass").body[0])
    made.body = list(body) or [ast.Pass()]
    return made


def _names(names: Sequence[str], context: ast.expr_context) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, context) for name in names], context)


class _Expressions(ast.NodeTransformer):
    """Rewrites the conditions inside expressions.

    Args:
        owner: The first parameter of the function, which `super()` means; None without one.
    """

    def __init__(self, owner: str | None) -> None:
        self._owner = owner

    def _skip(self, node: ast.AST) -> Any:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _skip

    def visit(self, node: ast.AST) -> Any:
        found = super().visit(node)
        return ast.copy_location(found, node) if found is not node and isinstance(node, ast.expr) else found

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        if _has([node], (ast.NamedExpr, ast.Await)):
            return node
        *firsts, result = node.values
        for value in reversed(firsts):
            result = _call("and_" if isinstance(node.op, ast.And) else "or_", _lambda(value), _lambda(result))
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _call("not_", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        if _has([node], (ast.NamedExpr, ast.Await)):
            return node
        return _call("choose", node.test, _lambda(node.body), _lambda(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1 or not all(isinstance(each, ast.Name | ast.Constant) for each in node.comparators[:-1]):
            return self.generic_visit(node)
        sides = [node.left, *node.comparators]
        pairs = [ast.Compare(copy.deepcopy(a), [o], [b]) for a, o, b in zip(sides, node.ops, sides[1:], strict=False)]
        return self.visit(ast.copy_location(ast.BoolOp(ast.And(), list(pairs)), node))

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self._owner is not None:
            node.args = [ast.Name("__class__", ast.Load()), ast.Name(self._owner, ast.Load())]
        return node


class _FunctionRewriter:
    """Rewrites one function, and the functions written in it.

    Args:
        function: The function; it is changed.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self._function = function
        arguments = function.args
        first = [*arguments.posonlyargs, *arguments.args]
        self._expressions = _Expressions(first[0].arg if first else None)
        self._outside = {
            name
            for node in _at_own_level(function.body)
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        self._count = 0

    def rewrite(self) -> None:
        """Rewrite its statements."""
        self._function.body = self._block(self._function.body, ends_function=True)

    def _block(self, body: Sequence[ast.stmt], *, ends_function: bool = False) -> list[ast.stmt]:
        """Return statements rewritten.

        Args:
            body: The statements.
            ends_function: Whether the function returns where they end.
        """
        made: list[ast.stmt] = []
        rest = list(body)
        while rest:
            statement = rest.pop(0)
            is_loop = isinstance(statement, ast.For | ast.While)
            returns = ends_function and isinstance(statement, ast.If | ast.For | ast.While) and jumps.returns(statement)
            if not returns or self._obstacle([statement], loops=is_loop, returns=True):
                made += [_at(statement, each) for each in self._statement(statement)]
            elif isinstance(statement, ast.If):
                return made + self._returning(statement, rest)
            else:
                awaited = _call("awaited", of=_LOOPING)
                loop = cast("ast.For", statement)
                behind = jumps.returning_behind(loop, self._new("returns"), self._new("value"), awaited)
                rest[:0] = [_at(statement, each) for each in behind]
        return made

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.FunctionDef():
                if not _has(node.body, (ast.Yield, ast.YieldFrom, ast.Await)):
                    _FunctionRewriter(node).rewrite()
                return [node]
            case ast.If():
                return self._if(node)
            case ast.While():
                return self._while(node)
            case ast.For():
                return self._for(node)
            case ast.Assert(test=test, msg=message):
                shown = _lambda(ast.Constant(None) if message is None else self._expressions.visit(message))
                return [ast.Expr(_call("assert_", self._expressions.visit(test), shown))]
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self._block(value))
            elif isinstance(value, list):
                setattr(node, name, [self._within(each) for each in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self._within(value))
        return [node]

    def _within(self, node: Any) -> Any:
        """Rewrite a part of a statement: an expression, an item of a `with`, a handler of an exception."""
        if isinstance(node, ast.ExceptHandler | ast.match_case):
            node.body = self._block(node.body)
            return node
        return self._expressions.visit(node) if isinstance(node, ast.AST) else node

    def _obstacle(self, nodes: Sequence[ast.AST], *, loops: bool, returns: bool = False) -> str:
        """Return what keeps statements from becoming a function of their own; nothing if they can.

        Args:
            nodes: The statements.
            loops: Whether `break` and `continue` in them belong to a loop that is rewritten.
            returns: Whether the function ends with them.
        """
        inside = [child for node in nodes for child in ast.iter_child_nodes(node)] if loops else nodes
        if not loops and _has(inside, jumps.JUMPS, (*_SCOPES, *_LOOPS)):
            return "a `break` or `continue`"
        if not returns and _has(nodes, (ast.Return,)):
            return "a `return` that only some of its paths reach"
        holders = [node for node in _at_own_level(nodes) if isinstance(node, _HOLDERS)]
        if _has(holders, (ast.Return,)) or (loops and any(map(jumps.leaves, holders))):
            return "a `break`, `continue` or `return` in a `with` or a `try`"
        if _has(nodes, (ast.Yield, ast.YieldFrom, ast.Await, ast.Delete)):
            return "a `yield`, `await` or `del`"
        if self._outside.intersection(_assigned(nodes)):
            return "an assignment to a name of an enclosing function or module"
        return ""

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"stratagem_{kind}_{self._count}"

    def _test(self, node: ast.If | ast.While, obstacle: str) -> ast.expr:
        return _call("truth", self._expressions.visit(node.test), ast.Constant(obstacle))

    def _if(self, node: ast.If) -> list[ast.stmt]:
        obstacle = self._obstacle([node], loops=False) or ("a `:=`" if _has([node.test], (ast.NamedExpr,)) else "")
        if obstacle:
            node.test = self._test(node, obstacle)
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
            return [node]
        names = _assigned([*node.body, *node.orelse])
        refusal = ast.Constant(_refusal([*node.body, *node.orelse]))
        result = ast.Return(_names(names, ast.Load()))
        then, otherwise = self._new("then"), self._new("else")
        call = _call("if_", self._expressions.visit(node.test), *_load(then, otherwise), *_scope(names), refusal)
        return [
            _function(then, names, [*self._block(node.body), result]),
            _function(otherwise, names, [*self._block(node.orelse), result]),
            _store(names, call),
        ]

    def _returning(self, node: ast.If, rest: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return an `if` with a `return` in it, and all that follows it, as one choice of what the function returns."""
        bodies = [b if _ends(b) else [*b, *copy.deepcopy(list(rest))] for b in (node.body, node.orelse)]
        if any(self._obstacle(body, loops=False, returns=True) for body in bodies):
            node.test = self._test(node, "a `return` that something in the way follows")
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
            return [node, *self._block(rest, ends_function=True)]
        names = _assigned([*bodies[0], *bodies[1]])
        refusal = ast.Constant(_refusal([*bodies[0], *bodies[1]]))
        then, otherwise = self._new("then"), self._new("else")
        test = self._expressions.visit(node.test)
        made = [
            _function(then, names, self._block(bodies[0], ends_function=True)),
            _function(otherwise, names, self._block(bodies[1], ends_function=True)),
            ast.Return(_call("returned", test, *_load(then, otherwise), *_scope(names), refusal)),
        ]
        return [_at(node, each) for each in made]

    def _while(self, node: ast.While) -> list[ast.stmt]:
        obstacle = self._obstacle([node], loops=True) or ("a `:=`" if _has([node.test], (ast.NamedExpr,)) else "")
        if obstacle:
            node.test = self._test(node, obstacle)
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
            return [node]
        flags = self._flags(node)
        if flags is not None:
            node.test = ast.BoolOp(ast.And(), [jumps.go_on(flags), node.test])
        names = _assigned(node.body)
        test, body = self._new("test"), self._new("body")
        refusal = ast.Constant(_refusal(node.body))
        made = [
            _function(test, names, [ast.Return(self._expressions.visit(node.test))]),
            _function(body, names, [*self._block(node.body), ast.Return(_names(names, ast.Load()))]),
            _store(names, _call("while_", *_load(test, body), *_scope(names), refusal, of=_LOOPING)),
        ]
        return self._with_flags(flags, made, node.orelse)

    def _for(self, node: ast.For) -> list[ast.stmt]:
        match node.iter:
            case ast.Call(func=ast.Name(id="range") as counting):
                node.iter.func = ast.copy_location(_call("counting", counting, of=_LOOPING), counting)
        elements = self._expressions.visit(node.iter)
        obstacle = self._obstacle([node], loops=True)
        if obstacle:
            node.iter = _call("elements", elements, ast.Constant(obstacle), of=_LOOPING)
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
            return [node]
        flags = self._flags(node)
        names = _assigned([node.target, *node.body])
        item, body = self._new("item"), self._new("body")
        taken = ast.Assign([node.target], ast.Name(item, ast.Load()))
        result = ast.Return(_names(names, ast.Load()))
        refusal = ast.Constant(_refusal([node.target, *node.body]))
        stop = ast.Constant(flags.stop if flags is not None and flags.stop in names else "")
        made = [
            _function(body, [item, *names], [_at(node, taken), *self._block(node.body), result]),
            _store(names, _call("for_", elements, *_load(body), stop, *_scope(names), refusal, of=_LOOPING)),
        ]
        return self._with_flags(flags, made, node.orelse)

    def _flags(self, node: ast.For | ast.While) -> Flags | None:
        """Write the body of a loop without `break` and `continue`; return the variables that take their place."""
        if not any(map(jumps.leaves, node.body)):
            return None
        flags = Flags(self._new("stop"), self._new("skip"))
        node.body = [_at(node, each) for each in jumps.under_flags(node.body, flags)]
        return flags

    def _with_flags(self, flags: Flags | None, made: list[ast.stmt], otherwise: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return a loop that has been rewritten, with what comes before and behind it."""
        if flags is None:
            return [*made, *self._block(otherwise)]
        behind = self._block([_at(made[0], ast.If(jumps.go_on(flags), list(otherwise), []))]) if otherwise else []
        return [jumps.stays(flags), *made, *behind]


def _load(*names: str) -> list[ast.expr]:
    return [ast.Name(name, ast.Load()) for name in names]


def _scope(names: Sequence[str]) -> list[ast.expr]:
    """Return names, and the variables that there are, as arguments."""
    texts: list[ast.expr] = [ast.Constant(name) for name in names]
    return [ast.Tuple(texts, ast.Load()), ast.Call(ast.Name("locals", ast.Load()), [], [])]


def _store(names: Sequence[str], call: ast.expr) -> ast.stmt:
    return ast.Assign([_names(names, ast.Store())], call) if names else ast.Expr(call)


def _at(origin: ast.stmt, made: _Node) -> _Node:
    """Give new nodes the line where the statement begins that they stand for."""
    if made is not origin:
        _begin_at(made, origin)
    for node in ast.walk(made):
        if isinstance(node, ast.expr | ast.stmt) and not hasattr(node, "lineno"):
            _begin_at(node, origin)
    return made


def _begin_at(node: Any, origin: ast.stmt) -> None:
    node.lineno = node.end_lineno = origin.lineno
    node.col_offset = node.end_col_offset = origin.col_offset
