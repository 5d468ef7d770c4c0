"""`stratagem doctor --layout`: the table that it prints, and what it says of functions that return no model."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.doctor.layouts import described

PROGRAM = """
import keras

def make_model():
    up, down = keras.layers.Dense(256, name="up"), keras.layers.Dense(64, name="down", use_bias=False)
    letters = keras.Input((64,))
    return keras.Model(letters, down(up(letters)))

def with_map():
    return make_model(), {"up/kernel": (None, "model"), ".*/nothing": ("model",)}

def bad_map():
    return make_model(), {"up/kernel": ("model",)}

def unbuilt():
    return keras.Sequential([keras.layers.Dense(3)])
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    return str(file)


def test_the_table_tells_what_a_device_holds(program: str) -> None:
    assert described(f"{program}:make_model", 2).splitlines() == [
        "variable     shape      divided along    on each device",
        "up/kernel    (64, 256)  axis 1: 256 / 2  32.8 kB",
        "up/bias      (256,)                      1.0 kB",
        "down/kernel  (256, 64)  axis 0: 256 / 2  32.8 kB",
        "",
        "Together 132.1 kB; 99% are divided among 2 devices: 66.6 kB on each.",
    ]


def test_a_map_is_followed_and_what_matches_nothing_is_named(program: str) -> None:
    *_, together, unmatched = described(f"{program}:with_map", 4).splitlines()
    assert together == "Together 132.1 kB; 50% are divided among 4 devices: 82.9 kB on each."
    assert unmatched == "Patterns that match no variable: '.*/nothing'"


@pytest.mark.parametrize(
    ("function", "devices", "said"),
    [
        ("unbuilt", 2, "which is not a built model"),
        ("bad_map", 2, "1 entries for 2 axes"),
        ("make_model", 1, "A replica has one device"),
        ("make_model", None, "without model_parallel"),
        ("nobody", 2, "has no nobody"),
    ],
)
def test_what_is_no_model_says_so(program: str, function: str, devices: int | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        described(f"{program}:{function}", devices)
