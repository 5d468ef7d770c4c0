"""What is an input and what is none, and what may not stand beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.feed.kinds.kinds import (
    batch,
    generator,
    model,
)

from stratagem.core.errors import InputError


@pytest.mark.parametrize("value", [[1, 2], 5, object()])
def test_what_is_no_input(value: Any) -> None:
    with pytest.raises(InputError, match=r"neither an array nor a dataset(.|\n)*asarray"):
        model().fit(value, verbose=0)


def test_targets_beside_a_generator() -> None:
    with pytest.raises(InputError, match="`x` is a generator, and `y` was given too"):
        model().fit(generator(), np.zeros(4), verbose=0)


def test_pandas_categories() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = batch(np.arange(4))
    with pytest.raises(InputError, match=r"series\.cat\.codes"):
        model().fit(x, pandas.Series(pandas.Categorical(["a", "b", "a", "b"])), verbose=0)
    assert len(model().fit(pandas.DataFrame(x), pandas.Series(y), verbose=0).history["loss"]) == 1


def test_rows_of_hugging_face_must_be_batched() -> None:
    datasets = pytest.importorskip("datasets")
    with pytest.raises(InputError, match="from_source"):
        model().fit(datasets.Dataset.from_dict({"x": [1.0]}), verbose=0)
