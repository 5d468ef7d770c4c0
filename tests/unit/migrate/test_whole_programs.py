"""The programs that are written for TensorFlow and run here: little more than their imports changes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from stratagem.migrate.findings import Kind
from stratagem.migrate.program import migrate

TESTS = Path(__file__).parents[2]
PROGRAMS = sorted([*(TESTS / "programs" / "tensorflow").glob("*.py"), *(TESTS / "tutorials").glob("*/*.py")])

NOT_THERE = {"tf.data.Dataset.window", "tf.saved_model.save"}
"""What they ask for, and may be missing."""


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.stem)
def test_little_more_than_imports_changes(file: Path) -> None:
    old = file.read_text()
    program = migrate(old)

    assert {f.what for f in program.findings if f.kind is Kind.MISSING} <= NOT_THERE
    rewritten = [f for f in program.findings if f.kind is Kind.REWRITE]
    assert {f.what for f in rewritten if "import" not in f.what} <= {
        "tf.metrics.SparseCategoricalAccuracy -> tf.keras.metrics.SparseCategoricalAccuracy",
        "tf.random_normal_initializer -> tf.keras.initializers.RandomNormal",
    }
    by_hand = re.sub(r"^(import|from) tensorflow(?=[. ])", r"\1 stratagem.tf", old, flags=re.M).splitlines()
    touched = {place.line for f in rewritten for place in f.places if "import" not in f.what}
    for number, (line, expected) in enumerate(zip(program.text.splitlines(), by_hand, strict=True), start=1):
        assert line == expected or number in touched

    ast.parse(program.text)
    again = migrate(program.text)
    assert again.text == program.text
    assert [f for f in again.findings if f.kind is not Kind.WORKS] == [
        f for f in program.findings if f.kind not in (Kind.WORKS, Kind.REWRITE)
    ]


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 25
