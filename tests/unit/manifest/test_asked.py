"""What can be asked for, and names."""

from __future__ import annotations

import pytest

from stratagem.core.errors import InputError
from stratagem.manifest.asked import Asked, name_of


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"name": "Train"}, "'Train' cannot be the name of a job."),
        ({"name": "a" * 41}, "at most 40"),
        ({"name": "4a"}, "a letter first"),
        ({"name": "a-"}, "'a-' cannot be the name"),
        ({"workers": 0}, "--workers is 0."),
        ({"workers": 3, "workers_per_node": 2}, "--workers is 3, --workers-per-node is 2."),
        ({"memory": "16"}, "--memory is '16'."),
        ({"memory": "16GB"}, "Write a whole number with Mi, Gi or Ti"),
    ],
)
def test_what_cannot_be_asked_for(more: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        Asked(**{"program": ("train.py",), "name": "train", **more})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("program", "name"), [("a/b/Train_it.py", "train-it"), ("__.py", "job"), ("pkg.mod", "mod"), ("x" * 60, "x" * 40)]
)
def test_names_of_programs(program: str, name: str) -> None:
    assert name_of(program) == name
    assert Asked((program,), name_of(program)).name == name
