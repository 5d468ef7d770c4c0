"""Names of ways to combine gradients, which XLA chooses itself."""

from __future__ import annotations

import pytest

import stratagem
import stratagem.tf as tf
from stratagem.core.errors import UnsupportedError


def test_what_accumulates_adds() -> None:
    assert stratagem.ReductionToOneDevice("cpu:0", tf.add_n).reduce_to_device == "cpu:0"
    with pytest.raises(UnsupportedError, match=r"which does not add.\n  Why it matters: XLA combines"):
        stratagem.ReductionToOneDevice(accumulation_fn=max)
