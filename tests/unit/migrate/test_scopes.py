"""Names of a program, followed to what they were imported as."""

from __future__ import annotations

import libcst as cst
import pytest

from stratagem.migrate.scopes import dotted, scopes_of


def full_names(program: str, expression: str, function: str | None = None) -> tuple[str, ...]:
    """Return the full names of an expression at the end of a program, or in one of its functions."""
    module = cst.parse_module(program)
    scopes = scopes_of(module)
    scope = scopes[module]
    if function is not None:
        scope = next(s for n, s in scopes.items() if isinstance(n, cst.FunctionDef) and n.name.value == function)
    return scope.full_names(cst.parse_expression(expression))


@pytest.mark.parametrize(
    ("program", "expression", "expected"),
    [
        ("import a.b", "a.b.c", ("a.b.c",)),
        ("import a.b as x", "x.c", ("a.b.c",)),
        ("from a import b as x", "x.c", ("a.b.c",)),
        ("from .a import b", "b", ()),
        ("import a\nx = a.b\ny = x", "y.c", ("a.b.c",)),
        ("try:\n    import a as x\nexcept ImportError:\n    import b as x", "x.c", ("a.c", "b.c")),
        ("import a\nx = a.b\nx = 3", "x", ()),
        ("x = y\ny = x", "x", ()),
        ("import a\nfor x in a.b: pass", "x", ()),
        ("import a\n(x := a.b)", "x", ("a.b",)),
        ("import a\nx, y = a.b, 1", "x", ()),
        ("import a", "a().b", ()),
    ],
)
def test_full_names(program: str, expression: str, expected: tuple[str, ...]) -> None:
    assert full_names(program, expression) == expected


def test_a_class_hides_its_names_from_its_methods() -> None:
    program = "import a\nclass C:\n    import b as a\n    def f(self):\n        pass\n"
    assert full_names(program, "a.c", "f") == ("a.c",)
    assert full_names("import a\ndef f(a): pass", "a.c", "f") == ()


def test_dotted_names() -> None:
    assert dotted(cst.parse_expression("a.b.c")) == "a.b.c"
    assert dotted(cst.parse_expression("a().b")) == ""
