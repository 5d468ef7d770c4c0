from __future__ import annotations

import pytest

from stratagem.core.gpus import chosen_gpus


@pytest.mark.parametrize(
    ("chosen", "gpus"),
    [("0,1", ["0", "1"]), (" 3 , 5", ["3", "5"]), ("-1", []), ("", []), ("3,-1,4", ["3"]), ("3,,4", ["3"])],
)
def test_the_first_name_that_is_no_device_ends_the_list(chosen: str, gpus: list[str]) -> None:
    assert chosen_gpus({"CUDA_VISIBLE_DEVICES": chosen}) == gpus


def test_nothing_is_chosen_without_the_variable() -> None:
    assert chosen_gpus({}) is None
