"""The backend is settled before Keras is loaded, whatever the order of imports. In processes of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.fresh import run_python

from stratagem.core import backend
from stratagem.core.errors import BackendError

_SAME = pytest.mark.thorough  # each process loads Keras, in two seconds


@pytest.mark.parametrize(
    ("program", "variables"),
    [
        pytest.param("import stratagem, keras", {}, id="stratagem first"),
        pytest.param("from stratagem import keras", {}, id="from stratagem import keras", marks=_SAME),
        pytest.param("from stratagem.keras import layers; import keras", {}, id="its modules", marks=_SAME),
        pytest.param("import stratagem, keras", {"KERAS_BACKEND": "jax"}, id="jax is set", marks=_SAME),
        pytest.param("import keras, stratagem", {"KERAS_BACKEND": "jax"}, id="jax is set, keras first", marks=_SAME),
        pytest.param("import stratagem, keras", {"KERAS_BACKEND": ""}, id="the variable is empty", marks=_SAME),
    ],
)
def test_keras_takes_jax(program: str, variables: dict[str, str], tmp_path: Path) -> None:
    done = run_python(
        "-c", f"{program}; print(keras.backend.backend()); import stratagem; stratagem.MirroredStrategy()",
        home=tmp_path, variables=variables,
    )  # fmt: skip
    assert done.stdout == "jax\n", done.stderr


@pytest.mark.thorough
def test_the_variable_wins_over_keras_json(tmp_path: Path) -> None:
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text(json.dumps({"backend": "tensorflow"}))
    done = run_python("-c", "from stratagem import keras; print(keras.backend.backend())", home=tmp_path)
    assert done.stdout == "jax\n", done.stderr


@pytest.mark.thorough
def test_keras_first_without_tensorflow_can_be_mended_in_the_same_process(tmp_path: Path) -> None:
    """In a notebook: the first cell failed, the next one has the right line."""
    program = (
        "import sys\n"
        "sys.modules['tensorflow'] = None\n"
        "try:\n"
        "    import keras\n"
        "except ImportError:\n"
        "    print('no TensorFlow')\n"
        "from stratagem import keras\n"
        "print(keras.backend.backend(), keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]).count_params())\n"
    )
    done = run_python("-c", program, home=tmp_path)
    assert done.stdout == "no TensorFlow\njax 9\n", done.stderr


@pytest.mark.parametrize("name", ["tensorflow", "torch", "numpy", "JAX"])
@pytest.mark.parametrize(
    "program", ["import stratagem", "import stratagem.tf as tf", "from stratagem import keras", "import stratagem.data"]
)
def test_another_backend_in_the_environment_is_refused_at_import(name: str, program: str, tmp_path: Path) -> None:
    done = run_python("-c", program, home=tmp_path, variables={"KERAS_BACKEND": name})
    assert done.returncode == 1
    assert (
        f"stratagem.core.errors.BackendError: Keras would be loaded with the backend '{name}': the environment has "
        f"KERAS_BACKEND={name}.\n  Why it matters: Stratagem compiles Keras's steps with JAX"
    ) in done.stderr
    assert 'What to do: Set KERAS_BACKEND=jax in the environment, or write os.environ["KERAS_BACKEND"] =' in done.stderr
    assert "site-packages/keras" not in done.stderr


def test_programs_that_do_without_stratagem_catch_an_import_error(tmp_path: Path) -> None:
    program = "try:\n    import stratagem\nexcept ImportError as error:\n    print(type(error).__name__)"
    done = run_python("-c", program, home=tmp_path, variables={"KERAS_BACKEND": "torch"})
    assert done.stdout == "BackendError\n", done.stderr


_WORK = (
    "import stratagem; print(sum(stratagem.data.Dataset.range(3)))",
    "import stratagem.cluster_resolver, stratagem.errors, stratagem.io, stratagem.data",
)
_REFUSED = (
    "import stratagem; stratagem.MirroredStrategy",
    "from stratagem import keras",
    "from stratagem.keras import layers",
    "import stratagem.tf as tf; tf.constant",
    "import stratagem.tf.keras as k; k.Model",
    *(f"import stratagem; stratagem.{name}" for name in ("function", "GradientTape", "ReplicaContext")),
    *(
        f"import stratagem.{module}"
        for module in ("callbacks", "coordinator", "estimator", "experimental", "nn", "strategy.base", "train")
    ),
)


@pytest.mark.thorough
def test_beside_a_keras_of_another_backend(tmp_path: Path) -> None:
    """Keras was loaded before, with NumPy here; with TensorFlow and PyTorch it is the same. One process tries all."""
    program = (
        "import json, sys, keras\n"
        "def outcome(statement):\n"
        "    try:\n"
        "        exec(statement, {})\n"
        "    except ImportError as error:\n"
        "        return f'{type(error).__name__}: {error}'\n"
        "print(json.dumps({statement: outcome(statement) for statement in sys.argv[1:]}))\n"
    )
    done = run_python("-c", program, *_WORK, *_REFUSED, home=tmp_path, variables={"KERAS_BACKEND": "numpy"})
    assert done.returncode == 0, done.stderr
    printed, outcomes = done.stdout.splitlines()
    assert printed == "3"
    message = (
        "BackendError: Keras was loaded with the backend 'numpy'.\n"
        "  Why it matters: Stratagem compiles Keras's steps with JAX; a model of another backend cannot run on its "
        "replicas.\n"
        "  What to do: Write `from stratagem import keras` in place of `import keras` (or `import stratagem` above "
        "it), or set KERAS_BACKEND=jax in the environment."
    )
    assert json.loads(outcomes) == dict.fromkeys(_WORK) | dict.fromkeys(_REFUSED, message)


@pytest.mark.parametrize(
    ("shown", "started", "expected"),
    [
        (["/venv/bin/stratagem", "run"], ["python", "/venv/bin/stratagem", "run"], True),
        (["C:/venv/Scripts/stratagem.exe"], ["python.exe", "stratagem.exe"], True),
        (["-m", "run", "t.py"], ["python", "-W", "error", "-m", "stratagem", "run", "t.py"], True),
        (["-m"], ["python", "-mstratagem"], True),
        (["-m", "stratagem"], ["python", "-m", "trainer", "stratagem"], False),  # a package of the user's own
        (["-m"], ["python", "-m", "stratagem.doctor"], False),
        (["train.py", "stratagem"], ["python", "train.py", "stratagem"], False),
        (["-c"], ["python", "-c", "import stratagem"], False),
        ([""], ["python"], False),
    ],
)
def test_what_the_own_command_is(
    shown: list[str], started: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", shown)
    monkeypatch.setattr(sys, "orig_argv", started)
    assert backend.is_own_command() is expected


def test_a_wrong_variable_is_found_before_keras_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with pytest.raises(BackendError, match=r"would be loaded with the backend 'torch'") as caught:
        backend.settle_backend()
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, RuntimeError)
