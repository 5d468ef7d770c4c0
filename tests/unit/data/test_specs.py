"""Specs of components: what they admit, and how steps change them."""

from __future__ import annotations

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import TensorSpec
from stratagem.data.specs import signature_of, spec_of


def test_batches_and_rows() -> None:
    spec = TensorSpec((2, None), "int8", "x")
    assert spec.batched(4) == TensorSpec((4, 2, None), np.int8, "x")
    assert spec.batched(None).row() == spec
    assert TensorSpec(None).batched(3).shape is None
    assert TensorSpec(None).row().shape is None


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [((2, 3), (2, 3), (2, 3)), ((2, 3), (4, 3), (None, 3)), ((2,), (2, 3), None), ((2,), None, None)],
)
def test_merging_admits_both(first: tuple, second: tuple | None, merged: tuple | None) -> None:
    spec = TensorSpec(first).merged(TensorSpec(second))
    assert spec.shape == merged
    assert spec.admits(first)


def test_what_is_admitted() -> None:
    spec = TensorSpec((None, 3))
    assert [spec.admits(shape) for shape in ((5, 3), (5, 4), (3,))] == [True, False, False]


def test_specs_of_elements() -> None:
    assert spec_of({"a": np.ones((2, 1), np.float32), "b": b"text"}) == {
        "a": TensorSpec((2, 1), np.float32),
        "b": TensorSpec((), object),
    }
    assert signature_of(("int32", "string"), ([None], ())) == (TensorSpec((None,), np.int32), TensorSpec((), object))
    assert signature_of("int32", None) == TensorSpec(None, np.int32)


def test_what_is_no_spec() -> None:
    with pytest.raises(InputError, match="dtype is 'number'"):
        TensorSpec((), "number")
    with pytest.raises(InputError, match="does not nest like output_types"):
        signature_of(("int32", "int32"), ((),))
