"""`break`, `continue` and `return` in a loop, written as conditions: a compiled loop ends where its condition says so.

Statements behind one that may leave the loop or the turn come under an `if` that asks whether it has. A `return` gives
the value to a variable and breaks; behind the loop an `if` returns it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

_Loop = TypeVar("_Loop", ast.For, ast.While)

JUMPS: Final = (ast.Break, ast.Continue)
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)


class Flags(NamedTuple):
    """Variables of a loop.

    Args:
        stop: Whether the loop is left.
        skip: Whether the rest of the turn is left out.
    """

    stop: str
    skip: str


def leaves(node: ast.AST) -> bool:
    """Whether something in a statement leaves the loop, or the turn, in which the statement is."""
    if isinstance(node, (*_LOOPS, *_SCOPES)):
        return False
    return isinstance(node, JUMPS) or any(map(leaves, ast.iter_child_nodes(node)))


def returns(node: ast.AST) -> bool:
    """Whether something in a statement returns from the function in which the statement is."""
    if isinstance(node, _SCOPES):
        return False
    return isinstance(node, ast.Return) or any(map(returns, ast.iter_child_nodes(node)))


def under_flags(body: Sequence[ast.stmt], flags: Flags) -> list[ast.stmt]:
    """Return the body of a loop without `break` and `continue`."""
    return [_assign(flags.skip, ast.Constant(False)), *_guarded(body, flags)]


def go_on(flags: Flags) -> ast.expr:
    """Return the condition under which a loop is not left."""
    return ast.UnaryOp(ast.Not(), ast.Name(flags.stop, ast.Load()))


def stays(flags: Flags) -> ast.stmt:
    """Return the statement in front of a loop."""
    return _assign(flags.stop, ast.Constant(False))


def _guarded(body: Sequence[ast.stmt], flags: Flags) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    for place, statement in enumerate(body):
        if not leaves(statement):
            made.append(statement)
            continue
        match statement:
            case ast.Break():
                made += [_assign(name, ast.Constant(True)) for name in flags]
            case ast.Continue():
                made.append(_assign(flags.skip, ast.Constant(True)))
            case ast.If():
                statement.body = _guarded(statement.body, flags)
                statement.orelse = _guarded(statement.orelse, flags)
                made.append(statement)
                rest = _guarded(body[place + 1 :], flags)
                if rest:
                    made.append(ast.If(ast.UnaryOp(ast.Not(), ast.Name(flags.skip, ast.Load())), rest, []))
        break
    return made


def returning_behind(loop: _Loop, did: str, value: str, awaited: ast.expr) -> list[ast.stmt]:
    """Return statements that do what a loop with a `return` in it does, with the `return` behind it.

    Args:
        loop: The loop; it is changed.
        did: The variable that says whether it returns.
        value: The variable of what it returns.
        awaited: What that is as long as it does not.
    """
    loop.body = _breaking(loop.body, did, value)
    result = ast.Return(ast.Name(value, ast.Load()))
    return [
        _assign(did, ast.Constant(False)),
        _assign(value, awaited),
        loop,
        ast.If(ast.Name(did, ast.Load()), [result], []),
    ]


def _breaking(body: Sequence[ast.stmt], did: str, value: str) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    for statement in body:
        made.append(statement)
        if not returns(statement):
            continue
        match statement:
            case ast.Return(value=result):
                given = _assign(value, ast.Constant(None) if result is None else result)
                made[-1:] = [given, _assign(did, ast.Constant(True)), ast.Break()]
            case ast.If():
                statement.body = _breaking(statement.body, did, value)
                statement.orelse = _breaking(statement.orelse, did, value)
            case ast.For() | ast.While():
                statement.body = _breaking(statement.body, did, value)
                made.append(ast.If(ast.Name(did, ast.Load()), [ast.Break()], []))
    return made


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)
