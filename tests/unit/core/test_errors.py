"""Messages of errors, and the names by which errors are caught."""

from __future__ import annotations

import pytest

import stratagem.errors
from stratagem.core import errors
from stratagem.core.errors import InputError, explain, name_some


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "seed is 3."),
        (("Write 1.",), "seed is 3.\n  What to do: Write 1."),
        (("Orders differ.", "Write 1."), "seed is 3.\n  Why it matters: Orders differ.\n  What to do: Write 1."),
    ],
)
def test_a_message_has_a_paragraph_for_each_part(parts: tuple[str, ...], message: str) -> None:
    assert explain("seed is 3.", *parts) == message
    assert str(InputError("seed is 3.", *parts)) == message


@pytest.mark.parametrize(
    ("most", "named"), [(2, "a, b and 1 more"), (3, "a, b, c"), (4, "a, b, c"), (1, "a and 2 more")]
)
def test_only_the_first_of_many_names_are_shown(most: int, named: str) -> None:
    assert name_some(iter("abc"), most) == named


def test_names_are_joined_as_asked() -> None:
    assert name_some(["a", "b"], separator="; ") == "a; b"
    assert name_some(map(str, range(17))).endswith("14, 15 and 1 more")


def test_every_class_has_a_public_name() -> None:
    classes = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert set(stratagem.errors.__all__) == classes
    assert all(getattr(stratagem.errors, name) is getattr(errors, name) for name in classes)
