"""Checks of arguments: what passes, and what the errors name."""

from __future__ import annotations

import pytest

from stratagem.core.errors import InputError
from stratagem.estimator import SessionRunHook
from stratagem.estimator.checks import check_callable, check_entries, check_kind, check_named


def test_entries_become_a_tuple() -> None:
    hook = SessionRunHook()
    assert check_entries("hooks with", None, SessionRunHook) == ()
    assert check_entries("hooks with", (entry for entry in [hook]), SessionRunHook) == (hook,)
    with pytest.raises(InputError, match="hooks with 5 of type int among them"):
        check_entries("hooks with", [hook, 5], SessionRunHook)
    for wrong in (hook, "log"):
        with pytest.raises(InputError, match=f"of type {type(wrong).__name__} in place of a list"):
            check_entries("hooks with", wrong, SessionRunHook)


class Named:
    def __init__(self, name: str | None) -> None:
        self.name = name


def test_entries_with_names_of_their_own() -> None:
    first, second = Named(None), Named("second")
    assert check_named("f was given x", first, Named, "Write one.") == (first,)
    assert check_named("f was given x", [first, second], Named, "Write one.") == (first, second)
    assert check_named("f was given x", None, Named, "Write one.") == ()
    for wrong in ([first, Named(None)], [first, 3]):
        with pytest.raises(InputError, match=r"f was given x=\[.*\]\.\n  What to do: Write one\."):
            check_named("f was given x", wrong, Named, "Write one.")
    with pytest.raises(InputError, match="f was given x=None"):
        check_named("f was given x", None, Named, "Write one.", least=1)


def test_kinds_and_functions() -> None:
    check_kind("f was given x", 1, int | None, "Write 1.")
    check_callable("f was given g", len, "Write a function.")
    with pytest.raises(InputError, match=r"f was given x='1' of type str\.\n  What to do: Write 1\."):
        check_kind("f was given x", "1", int | None, "Write 1.")
    with pytest.raises(InputError, match=r"f was given g=3\.\n  What to do: Write a function\."):
        check_callable("f was given g", 3, "Write a function.")
