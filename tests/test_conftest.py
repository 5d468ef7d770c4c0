"""What tests/conftest.py sets up holds in the processes that tests start."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import subprocess
import sys

import pytest
from tests import quick_xla
from tests.parts import is_in_part

_THREADS = "--xla_cpu_parallel_codegen_split_count=1"
_EMITTERS = "--xla_cpu_use_fusion_emitters=false"


def test_xla_knows_the_flags_that_make_it_quick() -> None:
    """A flag that it does not know ends the process in C++."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    version = importlib.metadata.version("jaxlib")
    quick_xla.set_up(environment, version)
    program = "import jax; print(jax.numpy.arange(3.0).sum())"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3.0\n"), f"jaxlib {version}: {done.stderr}"


@pytest.mark.parametrize(
    ("jaxlib", "expected"),
    [
        ("0.7.2", [_EMITTERS, _THREADS]),
        ("0.10.2", [_EMITTERS, _THREADS]),
        ("0.11.0", [_EMITTERS, _THREADS]),
        ("0.11.2", [_THREADS]),
        ("0.12.0.1", [_THREADS]),
        ("0.12.1.dev20260901", [_THREADS]),
        ("1.0", [_THREADS]),
    ],
)
def test_flags_of_a_version(jaxlib: str, expected: list[str]) -> None:
    assert quick_xla.flags(jaxlib) == expected


def test_flags_of_the_user_stay_and_quick_ones_stand_once() -> None:
    """xdist's processes begin with what the first one has set."""
    variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    for _ in range(2):
        quick_xla.set_up(variables, "0.10.2")
    assert variables["XLA_FLAGS"] == f"--xla_cpu_multi_thread_eigen=false {_EMITTERS} {_THREADS}"
    assert variables["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1"
    assert quick_xla.flags_of_user(variables) == ["--xla_cpu_multi_thread_eigen=false"]


@pytest.mark.parametrize(
    "variables", [{"JAX_PLATFORMS": "cuda,cpu"}, {"JAX_PLATFORMS": "cpu", quick_xla.AS_USERS: "1"}]
)
def test_where_users_count_nothing_is_set(variables: dict[str, str]) -> None:
    before = dict(variables)
    quick_xla.set_up(variables, "0.10.2")
    assert variables == before


def test_a_test_can_ask_for_processes_that_compile_as_users_do(as_users_do: None) -> None:
    assert not {_EMITTERS, _THREADS} & set(os.environ["XLA_FLAGS"].split())
    assert "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ
    assert "light_start" not in os.environ["PYTHONPATH"]


def test_each_test_is_in_one_part_with_all_of_its_cases() -> None:
    tests = [f"tests/test_{file}.py::test_{function}[{case}]" for file in "abc" for function in "abc" for case in "ab"]
    parts = [[test for test in tests if is_in_part(test, f"{part}/3")] for part in (1, 2, 3)]
    assert all(parts)
    assert sorted(itertools.chain(*parts)) == tests
    assert all(test.replace("[a]", "[b]") in part for part in parts for test in part)
    with pytest.raises(pytest.UsageError, match="--part 4/3"):
        is_in_part(tests[0], "4/3")
