"""Changes on their way: what is sent to each part, and how it is read there."""

from __future__ import annotations

import numpy as np
import pytest

from stratagem.program.remote_values import RowChange
from stratagem.ps.changes import Change, Location, divided, ids_by_part, with_arrays

PARTS = [Location(0, "table/part_0", 3), Location(1, "table/part_1", 2), Location(0, "table/part_2", 2)]
WHOLE = [Location(1, "bias")]


def sent(change: Change) -> list[tuple[str, bool, list[list[float]]]]:
    return [
        (part.name, operation.get("in_rows", False), [array.tolist() for array in arrays])
        for part, operation, arrays in change.operations()
    ]


def test_a_value_is_divided_by_rows() -> None:
    assert [piece.tolist() for piece in divided(np.arange(7), PARTS)] == [[0, 1, 2], [3, 4], [5, 6]]
    assert sent(Change("set", PARTS, np.arange(7))) == [
        ("table/part_0", False, [[0, 1, 2]]),
        ("table/part_1", False, [[3, 4]]),
        ("table/part_2", False, [[5, 6]]),
    ]
    assert sent(Change("set", WHOLE, 5.0)) == [("bias", False, [5.0])]


@pytest.mark.parametrize("parts", [PARTS, [Location(0, "table")]])
def test_rows_go_to_their_parts_with_their_numbers_there(parts: list[Location]) -> None:
    change = Change("apply", parts, RowChange(np.array([0, 3, 4, 6]), np.array([10.0, 13.0, 14.0, 16.0])))
    expected = [
        ("table/part_0", True, [[0], [10.0]]),
        ("table/part_1", True, [[0, 1], [13.0, 14.0]]),
        ("table/part_2", True, [[1], [16.0]]),
    ]
    assert sent(change) == (expected if len(parts) > 1 else [("table", True, [[0, 3, 4, 6], [10.0, 13.0, 14.0, 16.0]])])


def test_all_rows_need_no_numbers() -> None:
    assert ids_by_part(PARTS, None) == [None, None, None]
    assert [ids.tolist() for ids in ids_by_part(PARTS, np.array([2, 5]))] == [[2], [], [0]]


def test_an_operation_has_the_fields_of_its_change() -> None:
    more = {"optimizer": "sgd", "iterations": 3, "rate": 0.5}
    ((_, operation, _),) = Change("apply", WHOLE, 1.0, more).operations()
    assert operation == {"op": "apply", "name": "bias", **more}
    assert "in_rows" not in more


def test_arrays_are_read_in_the_order_they_were_sent() -> None:
    operations = [{"name": "a"}, {"name": "b", "in_rows": True}, {"name": "c", "in_rows": False}]
    arrays = [np.array(value) for value in (1, [2], 3, 4)]
    read = [
        (each["name"], ids if ids is None else ids.tolist(), int(a)) for each, ids, a in with_arrays(operations, arrays)
    ]
    assert read == [("a", None, 1), ("b", [2], 3), ("c", None, 4)]
