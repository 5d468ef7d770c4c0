"""Variables that are made in a context: those that something still refers to when it ends."""

from __future__ import annotations

from typing import Any

from stratagem.core.made_here import not_noting, note, noting


class Variable:
    """Refers to itself, as a layer and its variables do to each other."""

    def __init__(self) -> None:
        self.owner: Any = self
        note(self)


def test_what_is_kept_is_found_and_what_is_gone_is_not() -> None:
    Variable()  # outside
    with noting() as made:
        Variable()
        kept = Variable()
        with not_noting():
            others = Variable()
        with noting() as inner:
            last = Variable()
    assert (made.kept(), inner.kept()) == ([kept], [last])
    assert others.owner is others
    del kept
    assert made.kept() == []
