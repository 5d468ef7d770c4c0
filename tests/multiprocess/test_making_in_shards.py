"""Models that several workers make, and read from files, in shards: the bits of values, what is held, what fails."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

WIDTH = 64


def small_groups() -> None:
    """Let groups and packs be so small that a model of a test has many."""
    from stratagem.mesh import placing
    from stratagem.program import dividing

    dividing.GROUP_BYTES = 1 << 15  # pyright: ignore[reportAttributeAccessIssue, reportConstantRedefinition]
    placing._PACK_BYTES = 5000  # pyright: ignore[reportConstantRedefinition, reportAttributeAccessIssue]


def index() -> int:
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def network() -> tuple[Any, list[Any]]:
    """Return a model with each of Keras's initializers, and variables of other dtypes."""
    import keras

    named = keras.initializers
    first = [
        *(named.Orthogonal(), named.Identity(), named.Constant(-0.25), named.Ones(), named.Zeros()),
        *(named.GlorotNormal(), named.GlorotUniform(), named.HeNormal(), named.HeUniform(), named.LecunNormal()),
        *(named.LecunUniform(), named.RandomNormal(), named.RandomUniform(), named.TruncatedNormal()),
        *(named.VarianceScaling(), lambda shape, dtype=None: keras.ops.reshape(keras.ops.arange(WIDTH**2), shape) / 9),
    ]
    layers = [keras.layers.Dense(WIDTH, kernel_initializer=each, activation="tanh") for each in first]
    frozen = keras.layers.Dense(WIDTH, trainable=False)
    model = keras.Sequential([keras.Input((WIDTH,)), *layers, frozen, keras.layers.Dense(10)])
    rows = np.arange(WIDTH * 66).reshape(66, WIDTH)  # along its second axis with four replicas
    own = [
        keras.Variable(rows.astype("float16")),
        keras.Variable(initializer=rows % 5 - 2, dtype="int8", trainable=False),
        keras.Variable(rows % 3 == 0, dtype="bool"),
        keras.Variable(np.float32(-0.0) * rows, dtype="bfloat16"),
    ]
    own[0].assign(own[0] * 2)
    return model, [*model.weights, *own]


def bits(variable: Any) -> tuple[str, tuple[int, ...], bytes]:
    from jax.experimental.multihost_utils import process_allgather

    value = variable.value
    host = np.asarray(value if value.is_fully_addressable else process_allgather(value, tiled=True))
    return str(host.dtype), host.shape, host.tobytes()


def makes(seeds_differ: bool) -> dict[str, Any]:
    import keras

    import stratagem

    small_groups()
    strategy = stratagem.MultiWorkerMirroredStrategy(shard="parameters", shard_min_size=256)
    keras.utils.set_random_seed(1 + (index() if seeds_differ else 0))
    with strategy.scope():
        _, variables = network()
    return {
        "bits": [bits(variable) for variable in variables],
        "held": [[shard.data.nbytes for shard in each.value.addressable_shards] for each in variables],
    }


@pytest.mark.parametrize(("workers", "devices", "seeds_differ"), [(2, None, False), (4, None, True), (2, 2, True)])
def test_what_is_made_in_shards_has_the_bits_of_keras(workers: int, devices: int | None, seeds_differ: bool) -> None:
    import keras

    keras.utils.set_random_seed(1)
    _, variables = network()  # plain Keras
    expected = [bits(variable) for variable in variables]
    results = run_workers(makes, workers, args=[seeds_differ], devices_per_worker=devices, timeout_seconds=120)
    replicas = workers * (devices or 1)
    for result in results:
        for variable, found, wanted in zip(variables, result.value["bits"], expected, strict=True):
            assert found == wanted, variable.path
        for variable, held in zip(variables, result.value["held"], strict=True):
            whole = np.asarray(variable.value).nbytes
            size = int(np.prod(variable.shape))
            assert held == ([whole // replicas] * (devices or 1) if size >= 256 else [whole]), variable.path


def compiled() -> Any:
    import keras

    dense = [keras.layers.Dense(WIDTH, activation="tanh") for _ in range(4)]
    model = keras.Sequential([keras.Input((WIDTH,)), *dense, keras.layers.Dense(10)])
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def examples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    return rng.rand(32, WIDTH).astype("float32"), rng.randint(0, 10, 32)


def held_by(variables: Any) -> int:
    return sum(shard.data.nbytes for variable in variables for shard in variable.value.addressable_shards)


def reads(stage: str | None, folder: str) -> dict[str, Any]:
    import keras

    import stratagem

    small_groups()
    keras.utils.set_random_seed(1)
    strategy = stratagem.MultiWorkerMirroredStrategy(shard=stage, shard_min_size=stage and 256)
    x, y = examples()
    with strategy.scope():
        model = compiled()
    model.save_weights(f"{folder}/first.weights.h5")  # before any step
    model.fit(x, y, batch_size=16, verbose=0, shuffle=False)
    model.save(f"{folder}/model.keras")
    after = model.fit(x, y, batch_size=16, verbose=0, shuffle=False).history["loss"]
    model.load_weights(f"{folder}/first.weights.h5")
    outcome: dict[str, Any] = {"after": after, "first": [bits(each) for each in model.weights]}
    outcome["held first"] = held_by(model.weights)
    with strategy.scope():
        opened = keras.models.load_model(f"{folder}/model.keras")
    slots = opened.optimizer.variables
    outcome["opened"] = [bits(each) for each in (*opened.weights, *slots)]
    outcome["held opened"] = held_by(opened.weights), held_by(slots)
    opened.save(f"{folder}/again.keras")  # the slots are not marked before a step
    outcome["again"] = opened.fit(x, y, batch_size=16, verbose=0, shuffle=False).history["loss"]
    outcome["evaluated"] = model.evaluate(x, y, verbose=0)
    outcome["called"] = np.asarray(model(x).addressable_data(0))[:4] if stage else np.asarray(model(x))[:4]
    return outcome


def test_what_is_read_in_shards_is_what_the_file_holds(tmp_path: Path) -> None:
    found = {}
    for stage in (None, "parameters"):
        folder = tmp_path / str(stage)
        folder.mkdir()
        results = run_workers(reads, 2, args=[stage, str(folder)], timeout_seconds=120)
        found[stage] = [result.value for result in results]
    expected = found[None][0]
    divisible = 4 * 4 * WIDTH**2 + 4 * WIDTH * 10  # bytes of kernels
    for outcome in found["parameters"]:
        for name in ("after", "first", "opened", "again", "evaluated"):
            assert outcome[name] == expected[name], name
        assert outcome["again"] == outcome["after"]
        np.testing.assert_allclose(outcome["called"], expected["called"], rtol=1e-5, atol=1e-6)
        assert outcome["held first"] == expected["held first"] - divisible // 2
        weights, slots = expected["held opened"]
        assert outcome["held opened"] == (weights - divisible // 2, slots - divisible)


def quantizes(stage: str | None) -> dict[str, Any]:
    """Train, quantize, and train adapters of the int8 weights."""
    import warnings

    import keras

    import stratagem

    keras.utils.set_random_seed(7)
    strategy = stratagem.MultiWorkerMirroredStrategy(shard=stage, shard_min_size=stage and 256)
    with strategy.scope():
        model = compiled()
    x, y = examples()
    outcome: dict[str, Any] = {"before": model.fit(x, y, batch_size=16, verbose=0, shuffle=False).history["loss"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # layers without weights say that they have no quantize
        model.quantize("int8")
    outcome["quantized"] = model.evaluate(x, y, verbose=0)
    for layer in model.layers[-2:]:
        layer.enable_lora(2)
    model.compile("adam", model.loss)
    outcome["adapted"] = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history["loss"]
    return outcome


def test_workers_quantize_a_model_in_shards() -> None:
    first, *others = [
        result.value
        for stage in (None, "parameters")
        for result in run_workers(quantizes, 2, args=[stage], timeout_seconds=120)
    ]
    assert first["adapted"][1] < first["adapted"][0]
    for other in others:
        for name, value in first.items():
            np.testing.assert_allclose(other[name], value, rtol=1e-6, err_msg=name)


def differs(what: str, folder: str) -> str:
    import keras

    import stratagem

    small_groups()
    options = stratagem.CommunicationOptions(timeout_seconds=5)
    strategy = stratagem.MultiWorkerMirroredStrategy(
        shard="parameters", shard_min_size=256, communication_options=options
    )
    try:
        with strategy.scope():
            model = compiled()
            if what == "made" and index() == 1:
                keras.layers.Dense(WIDTH * 4).build((None, WIDTH * 4))
                keras.layers.Dense(WIDTH * 4).build((None, WIDTH * 4))
        if what == "read" and index() == 0:
            path = f"{folder}/it.weights.h5"
            model.load_weights(path)
        if what == "numpy":
            model.get_weights()
        model.predict(examples()[0], verbose=0)
    except (stratagem.errors.PeerError, stratagem.errors.UsageError) as error:
        return str(error)
    return "no error"


def test_workers_that_make_other_variables_are_told(tmp_path: Path) -> None:
    results = run_workers(differs, 2, args=["made", str(tmp_path)], timeout_seconds=60, check=False)
    said = [str(result.value or result.output) for result in results]
    assert all("The tasks differ at agreement 'variables made in the scope'" in text for text in said), said
    assert all("What to do" in text for text in said)


def test_a_file_that_the_chief_alone_reads_is_an_error_and_no_wait(tmp_path: Path) -> None:
    results = run_workers(differs, 2, args=["read", str(tmp_path)], timeout_seconds=60, check=False)
    said = " ".join(str(result.value or result.output) for result in results)
    assert "load_weights" in said
    assert "What to do" in said
    assert "no error" not in said


def test_reading_what_others_hold_says_what_to_write(tmp_path: Path) -> None:
    for result in run_workers(differs, 2, args=["numpy", str(tmp_path)], timeout_seconds=60):
        assert "kernel, of shape [64, 64], was read on one worker, but it is kept in shards" in result.value
        assert "process_allgather" in result.value


MEGABYTES = 700
"""In shards 500 do on a quiet machine, and beside other work 600 were once too few; whole, 800 are too few too."""


def makes_in(megabytes: int, stage: str | None, path: str) -> list[float]:
    """Make, read and train 50 million weights with so much memory beyond what JAX and Keras take."""
    import resource

    import jax
    import keras

    import stratagem

    # Where memory is limited, the heap takes no addresses ahead; they would count as taken here.
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 50, resource.RLIM_INFINITY))
    strategy = stratagem.MultiWorkerMirroredStrategy(shard=stage)
    jax.jit(lambda x: x + 1)(np.ones(3))
    status = Path("/proc/self/status").read_text().splitlines()
    taken = next(int(line.split()[1]) for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (taken * 1024 + megabytes * 10**6,) * 2)
    with strategy.scope():
        model = wide()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.load_weights(path)
    x, y = np.ones((32, 1024), "float32"), np.arange(32) % 10
    return model.fit(x, y, batch_size=32, epochs=2, verbose=0).history["loss"]


def wide() -> Any:
    import keras

    layers = [keras.layers.Dense(1024, activation="tanh") for _ in range(48)]
    return keras.Sequential([keras.Input((1024,)), *layers, keras.layers.Dense(10)])


def saves_wide(path: str) -> None:
    wide().save_weights(path)


needs_limits = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's limits of memory")


@pytest.fixture(scope="module")
def wide_weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("wide") / "wide.weights.h5")
    run_workers(saves_wide, 1, args=[path], timeout_seconds=60)
    return path


def whole_in(megabytes: int, path: str) -> list[Any]:
    """Return what becomes of workers with whole weights and so much memory."""
    return run_workers(makes_in, 4, args=[megabytes, None, path], timeout_seconds=120, check=False)


@needs_limits
def test_a_model_that_does_not_fit_whole_is_made_read_and_trained_in_shards(wide_weights: str) -> None:
    results = run_workers(makes_in, 4, args=[MEGABYTES, "parameters", wide_weights], timeout_seconds=120)
    assert all(result.value == results[0].value for result in results)
    assert np.isfinite(results[0].value).all()
    whole = whole_in(MEGABYTES, wide_weights)
    assert [result.value for result in whole] == [None] * 4
    short = ("Out of memory allocating", "Unable to allocate", "bad_alloc", "MemoryError")
    assert any(words in result.output for result in whole for words in short)


@needs_limits
def test_a_model_that_cannot_be_made_whole_names_shards(wide_weights: str) -> None:
    failed = [result.output for result in whole_in(600, wide_weights) if "Traceback" in result.output]
    assert any("in of_the_chief" in text and "ut of memory" in text for text in failed)  # while it was made
    assert any('shard="parameters"' in text for text in failed)
