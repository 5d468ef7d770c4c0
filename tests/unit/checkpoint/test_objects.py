"""Parts of objects, by names that are the same in every run."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from stratagem.checkpoint import objects
from stratagem.checkpoint.objects import Holder, PlainValue, graph_of, identity, is_leaf, parts_of
from stratagem.core.errors import InputError


class Cursor:
    """An iterator with a place."""

    def get_state(self) -> int:
        return 3

    def set_state(self, state: int) -> None: ...


class Counting(Cursor, dict[str, int]):
    """A dictionary that also has a state: its entries count."""


def holder(**parts: Any) -> Holder:
    made = Holder()
    vars(made).update(parts)
    return made


def test_public_attributes_of_a_holder_are_its_parts() -> None:
    cursor, made = Cursor(), holder(step=3, _hidden=4)
    vars(made)["cursor"] = cursor
    parts = made.checkpoint_parts()

    assert list(parts) == ["step", "cursor"]
    assert parts["cursor"] is cursor
    assert parts["step"].get() == 3
    parts["step"].set(7)
    assert (vars(made)["step"], made.checkpoint_parts()["step"].get()) == (7, 7)
    assert identity(parts["step"]) == identity(made.checkpoint_parts()["step"])


@pytest.mark.parametrize(
    ("value", "leaf"),
    [
        (keras.Variable(1.0), True),
        (PlainValue([2], 0), True),
        (Cursor(), True),
        (Counting(a=1), False),
        ([1, 2], False),
        (holder(x=1), False),
        (keras.random.SeedGenerator(1), False),
    ],
)
def test_a_value_is_saved_itself_or_by_its_parts(value: Any, leaf: bool) -> None:
    assert is_leaf(value) is leaf
    assert (parts_of(value, "x") == {}) is leaf


def test_a_graph_names_each_object_by_its_shortest_path_once() -> None:
    shared = keras.Variable(1.0)
    nodes = graph_of(holder(deep={"a/b": [shared]}, near=shared))

    assert [node.name for node in nodes] == ["", "deep", "near", "deep/a%2Fb"]
    assert [node.parts for node in nodes] == [{"deep": 1, "near": 2}, {"a%2Fb": 3}, {}, {"0": 2}]


def test_variables_of_a_layer_have_the_names_of_its_author_and_numbers_beside_them() -> None:
    layer = keras.layers.Dense(2)
    layer.build((None, 3))

    assert {name: part.shape for name, part in parts_of(layer, "").items()} == {"kernel": (3, 2), "bias": (2,)}
    assert list(objects._named([keras.Variable(0.0, name=name) for name in ("a", "variable_7", "a", "variable")])) == [
        "a",
        "variable",
        "a-1",
        "variable-1",
    ]


def test_an_object_without_state_says_where_it_is_and_what_to_give() -> None:
    with pytest.raises(InputError, match=r"data/1 is .* of type ndarray(.|\n)*Put an array into a keras\.Variable"):
        graph_of(holder(data=[1, np.zeros(2)]))
    with pytest.raises(InputError, match=r"pair/0 is '1' of type int"):
        graph_of(holder(pair=(1, 2)))
