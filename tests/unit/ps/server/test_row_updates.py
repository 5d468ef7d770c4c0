"""Embeddings on parameter servers: only rows travel, with the numbers of one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from tests.unit.ps.servers import running_servers
from tests.unit.ps.test_variables import sent_to_servers

import stratagem
from stratagem.core.errors import InputError
from stratagem.program.remote_values import RowChange, RowsOf
from stratagem.ps.changes import Change, Location
from stratagem.ps.client import Servers
from stratagem.ps.partitioners import FixedShardsPartitioner
from stratagem.ps.placement import Placement
from stratagem.ps.server.row_updates import RowUpdater
from stratagem.ps.server.store import Store, StoredPart
from stratagem.ps.server.updates import Updater
from stratagem.ps.variables import RemoteVariable, Residence

ROWS = 400


@pytest.fixture
def servers() -> Iterator[Servers]:
    with running_servers() as servers:
        yield servers


class Counting(Residence):
    """Notes how many rows of tables are read and changed; None for a whole one."""

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self.rows_read: list[int | None] = []
        self.rows_changed: list[int | None] = []

    def read(self, variables: Any) -> list[Any]:
        for each in variables:
            if isinstance(each, RowsOf) or (isinstance(each, RemoteVariable) and each.shape[:1] == (ROWS,)):
                self.rows_read.append(len(each.ids) if isinstance(each, RowsOf) else None)
        return super().read(variables)

    def write(self, changes: Any) -> None:
        for each, value in changes:
            if isinstance(value, RowChange) or tuple(each.shape)[:1] == (ROWS,):
                self.rows_changed.append(len(value.ids) if isinstance(value, RowChange) else None)
        super().write(changes)


def placed(servers: Servers, variables: Any, parts: int = 2, lazy_update_bytes: int = 1 << 30) -> tuple[Any, Counting]:
    """Move variables to the servers; return what moves more, and what counts."""
    placement = Placement(servers, FixedShardsPartitioner(parts), lazy_update_bytes)
    placement.residence = Counting(servers)
    placement.place(variables)
    return placement, placement.residence


def make_model() -> Any:
    """Two tables; one is looked up twice, the other has a mask."""
    keras.utils.set_random_seed(3)
    words: Any = keras.Input((3,), dtype="int32")
    item: Any = keras.Input((), dtype="int32")
    text = keras.layers.Embedding(ROWS, 4, mask_zero=True)(words)
    items = keras.layers.Embedding(ROWS, 4)
    product = keras.layers.GlobalAveragePooling1D()(text) * items(item)
    return keras.Model([words, item], keras.layers.Dense(1)(product + items(item // 2)))


RANDOM = np.random.default_rng(0)
BATCHES = [
    (
        RANDOM.integers(1, ROWS, (8, 3)).astype("int32") * (RANDOM.random((8, 3)) < (1.0, 0.6, 0.6)),
        RANDOM.integers(0, ROWS, 8).astype("int32"),
        RANDOM.normal(size=(8, 1)).astype("float32"),
    )
    for _ in range(3)
]


def make_step(model: Any, optimizer: Any) -> Callable[..., Any]:
    def step(words: Any, item: Any, target: Any) -> Any:
        with stratagem.GradientTape() as tape:
            loss = keras.ops.mean((model([words, item], training=True) - target) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return step


def in_run(step: Callable[..., Any]) -> Callable[..., Any]:
    """The other way in which a worker's program is compiled."""
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    return lambda *batch: strategy.run(step, batch)


OPTIMIZERS = [
    pytest.param(lambda: keras.optimizers.SGD(0.5, clipnorm=0.1), 1, stratagem.function, marks=pytest.mark.thorough),
    (lambda: keras.optimizers.Adagrad(0.1, global_clipnorm=0.2, loss_scale_factor=4.0), 3, in_run),
    (lambda: keras.optimizers.AdamW(0.05, weight_decay=0.1, use_ema=True), 2, stratagem.function),
]


@pytest.mark.parametrize(("make_optimizer", "parts", "compiled"), OPTIMIZERS)
def test_training_is_that_of_one_process(servers: Servers, make_optimizer: Any, parts: int, compiled: Any) -> None:
    expected_model, model = make_model(), make_model()
    step = stratagem.function(make_step(expected_model, make_optimizer()))
    expected = [float(step(*batch)) for batch in BATCHES]
    placement, counting = placed(servers, model.variables, parts)
    optimizer = sent_to_servers(make_optimizer(), placement)
    step = compiled(make_step(model, optimizer))
    got = [float(step(*batch)) for batch in BATCHES]
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(got, expected, rtol=2e-5)
    for ours, theirs in zip(model.get_weights(), expected_model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    touched = [n for words, item, _ in BATCHES for n in (len({*words.flat}), len({*item.flat, *(item // 2).flat}))]
    assert counting.rows_changed == touched
    assert counting.rows_read[: len(touched)] == touched


def test_ids_out_of_range_touch_no_row(servers: Servers) -> None:
    """As in Keras on JAX: reading one gives NaN from `take`, the last row where ids are clipped; negative ones wrap."""
    value = np.arange(ROWS * 2, dtype="float32").reshape(ROWS, 2)
    plain, table = keras.Variable(value.copy()), keras.Variable(value.copy())
    placement, counting = placed(servers, [table], 3)
    ids = np.array([5, ROWS, -1, -ROWS - 1, 399, 5, 2**31 - 1, -(2**31)], "int32")

    def make(variable: Any, optimizer: Any) -> Callable[..., Any]:
        def step(ids: Any) -> Any:
            with stratagem.GradientTape() as tape:
                taken = keras.ops.take(variable, ids, axis=0)
                clipped = jnp.take(variable.value, ids, axis=0, mode="clip")
                indexed = variable.value[ids % ROWS]
                loss = keras.ops.sum(taken) + keras.ops.sum(clipped * 2.0) + keras.ops.sum(indexed * 3.0)
            (gradient,) = tape.gradient(loss, [variable])
            optimizer.apply([gradient], [variable])
            return taken, clipped, indexed

        return stratagem.function(step)

    expected = make(plain, keras.optimizers.SGD(1.0))(ids)
    got = make(table, sent_to_servers(keras.optimizers.SGD(1.0), placement))(ids)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert np.isnan(np.asarray(got[0])).any(axis=1).tolist() == [False, True, False, True, False, False, True, True]
    np.testing.assert_array_equal(table.numpy(), plain.numpy())
    assert counting.rows_changed[0] is not None


def test_rows_of_no_table_and_of_the_first_part_only(servers: Servers) -> None:
    table = keras.Variable(np.ones((ROWS, 2), "float32"))
    placement, counting = placed(servers, [table], 2)
    optimizer = sent_to_servers(keras.optimizers.Adam(0.1), placement)

    @stratagem.function
    def step(ids: Any) -> Any:
        with stratagem.GradientTape() as tape:
            loss = keras.ops.sum(keras.ops.nan_to_num(keras.ops.take(table, ids, axis=0)))
        optimizer.apply(tape.gradient(loss, [table]), [table])
        return loss

    assert float(step(np.array([3, 3], "int32"))) == 4.0
    assert float(step(np.array([ROWS, ROWS], "int32"))) == 0.0  # momentum still moves row 3
    assert (counting.rows_read, counting.rows_changed) == ([1, 0], [1, 0])
    plain, adam = keras.Variable(np.ones((1, 2), "float32")), keras.optimizers.Adam(0.1)
    for gradient in (2.0, 0.0):
        adam.apply([np.full((1, 2), gradient, "float32")], [plain])
    np.testing.assert_allclose(table.numpy()[3], plain.numpy()[0], rtol=1e-6)
    np.testing.assert_array_equal(np.delete(table.numpy(), 3, axis=0), 1.0)


def test_what_nothing_needs_is_not_read_whole(servers: Servers) -> None:
    """A loop that drops what it takes of one table, and keeps what it takes of another."""
    tables = [keras.Variable(np.full((ROWS, 1), n, "float32"), name=f"unused_{n}") for n in (1.0, 2.0)]
    _, counting = placed(servers, tables)

    @stratagem.function
    def step(ids: Any) -> Any:
        first, second = (keras.ops.take(table, ids, axis=0) for table in tables)
        loop = lambda _, carry: (carry[0] + 1.0, carry[1] * 2.0)  # noqa: E731
        return jax.lax.fori_loop(0, 2, loop, (first, second))[1]

    np.testing.assert_array_equal(step(np.array([1, 5])), [[8.0], [8.0]])
    assert counting.rows_read == [2, 2]


def test_a_large_table_is_updated_lazily(servers: Servers) -> None:
    """Adam with momentum that only moves on in rows that are looked up: that of Kingma and Ba, row by row."""
    value = np.random.default_rng(1).normal(size=(ROWS, 3)).astype("float32")
    table = keras.Variable(value.copy())
    placement, _ = placed(servers, [table], 3, lazy_update_bytes=value.nbytes - 1)
    optimizer = sent_to_servers(keras.optimizers.Adam(0.1), placement)

    @stratagem.function
    def step(ids: Any, weights: Any) -> None:
        with stratagem.GradientTape() as tape:
            loss = keras.ops.sum(keras.ops.take(table, ids, axis=0) * weights)
        optimizer.apply(tape.gradient(loss, [table]), [table])

    first, second, random = np.zeros_like(value), np.zeros_like(value), np.random.default_rng(2)
    for time in range(1, 5):
        ids, weights = random.integers(0, 200, 30).astype("int32"), random.normal(size=(30, 3)).astype("float32")
        step(ids, weights)
        gradient = np.zeros_like(value)
        np.add.at(gradient, ids, weights)
        rows = np.unique(ids)
        first[rows] += (gradient[rows] - first[rows]) * 0.1
        second[rows] += (gradient[rows] ** 2 - second[rows]) * 0.001
        rate = 0.1 * math.sqrt(1 - 0.999**time) / (1 - 0.9**time)
        value[rows] -= rate * first[rows] / (np.sqrt(second[rows]) + 1e-7)
    np.testing.assert_allclose(table.numpy(), value, rtol=1e-4, atol=1e-5)


FALLBACKS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    (
        "transpose",
        lambda table, ids: keras.ops.matmul(keras.ops.take(table, ids, axis=0), keras.ops.transpose(table)),
    ),
    ("reduce_sum", lambda table, ids: keras.ops.take(table, ids, axis=0) + keras.ops.sum(table**2)),
    (
        "an id is the result of another lookup",
        lambda table, ids: keras.ops.take(table, keras.ops.cast(table.value[ids][:, 0] > 0, "int32"), axis=0),
    ),
]


@pytest.mark.parametrize(("reason", "used"), FALLBACKS, ids=["tied weights", "regularizer", "id of a lookup"])
def test_other_uses_take_the_whole_table_and_say_so(
    servers: Servers, capfd: pytest.CaptureFixture[str], reason: str, used: Callable[[Any, Any], Any]
) -> None:
    value = np.random.default_rng(1).normal(size=(ROWS, 2)).astype("float32")
    name = f"table_{len(reason)}"
    plain, table = (keras.Variable(value.copy(), name=name) for _ in range(2))
    placement, counting = placed(servers, [table])

    def make(variable: Any, optimizer: Any) -> Callable[..., Any]:
        def step(ids: Any) -> Any:
            with stratagem.GradientTape() as tape:
                loss = keras.ops.sum(used(variable, ids))
            optimizer.apply(tape.gradient(loss, [variable]), [variable])
            return loss

        return stratagem.function(step)

    expected = make(plain, keras.optimizers.Adagrad(0.1))
    step = make(table, sent_to_servers(keras.optimizers.Adagrad(0.1), placement))
    for ids in ([1, 7], [7, 399]):
        np.testing.assert_allclose(step(np.array(ids)), expected(np.array(ids)), rtol=1e-5)
    np.testing.assert_allclose(table.numpy(), plain.numpy(), rtol=1e-5, atol=1e-6)
    assert set(counting.rows_read) == set(counting.rows_changed) == {None}
    said = [line for line in capfd.readouterr().err.splitlines() if name in line]
    assert len(said) == 1
    assert f"all of its {ROWS} rows travel" in said[0]
    assert reason in said[0]


def test_what_is_done_to_a_gradient_is_done_to_the_whole(servers: Servers) -> None:
    """A mean over the table counts all rows; what is no longer zero elsewhere is sent whole."""
    value = np.random.default_rng(1).normal(size=(ROWS, 2)).astype("float32")
    plain, table = keras.Variable(value.copy()), keras.Variable(value.copy(), name="noisy")
    placement, counting = placed(servers, [table])

    def make(variable: Any, optimizer: Any) -> Callable[..., Any]:
        def step(ids: Any, noise: Any) -> Any:
            with stratagem.GradientTape() as tape:
                loss = keras.ops.sum(keras.ops.take(variable, ids, axis=0) ** 2)
            (gradient,) = tape.gradient(loss, [variable])
            mean = keras.ops.mean(gradient) + keras.ops.max(gradient) * keras.ops.min(gradient)
            finite = keras.ops.all(keras.ops.isfinite(gradient))
            optimizer.apply([gradient * mean + noise], [variable])
            return mean, finite

        return stratagem.function(step)

    expected = make(plain, keras.optimizers.SGD(1.0))
    step = make(table, sent_to_servers(keras.optimizers.SGD(1.0), placement))
    ids = np.array([1, 7, 7], "int32")
    for noise in (0.0, math.nan, 0.0, 0.125, 0.0):
        np.testing.assert_allclose(step(ids, np.float32(noise)), expected(ids, np.float32(noise)), rtol=1e-5)
        np.testing.assert_allclose(table.numpy(), plain.numpy(), rtol=1e-5)
        if math.isnan(noise):
            plain.assign(value)
            table.assign(value)
    assigned, from_now_on = None, [None, None]
    assert counting.rows_changed == [2, None, assigned, 2, *from_now_on]


def test_low_precision(servers: Servers) -> None:
    value = np.random.default_rng(1).normal(size=(ROWS, 2)).astype("float32")

    def make(dtype: str) -> tuple[Any, Callable[..., Any], Any]:
        layer = keras.layers.Embedding(ROWS, 2, dtype=dtype)
        layer.build()
        layer.embeddings.assign(value)
        optimizer = keras.optimizers.SGD(0.5)
        if placements:
            placed_now, counting = placed(servers, layer.variables)
            countings.append(counting)
            optimizer = sent_to_servers(optimizer, placed_now)

        @stratagem.function
        def step(ids: Any) -> Any:
            with stratagem.GradientTape() as tape:
                loss = keras.ops.mean(layer(ids) ** 2)
            optimizer.apply(tape.gradient(loss, layer.variables), layer.variables)
            return loss

        return layer, step, optimizer

    countings: list[Counting] = []
    for dtype in ("mixed_bfloat16", "float16"):
        placements = False
        plain, expected, _ = make(dtype)
        placements = True
        layer, step, _ = make(dtype)
        ids = np.array([[4, 4, 9]], "uint8")
        for _ in range(2):
            assert float(step(ids)) == float(expected(ids))
        assert layer.embeddings.dtype == plain.embeddings.dtype
        np.testing.assert_array_equal(layer.embeddings.numpy(), plain.embeddings.numpy())
        assert countings[-1].rows_changed == [2, 2]


def test_traffic_is_that_of_the_rows(servers: Servers) -> None:
    """A decade more ids, a decade more bytes, within 20%; the table has ten million rows, and no worker has it."""
    rows, columns = 10_000_000, 2
    table = keras.Variable("zeros", shape=(rows, columns), dtype="float32", name="ten_million")
    placement, _ = placed(servers, [table], 2)
    optimizer = sent_to_servers(keras.optimizers.SGD(1.0), placement)

    @stratagem.function
    def step(ids: Any) -> Any:
        with stratagem.GradientTape() as tape:
            looked_up = keras.ops.take(table, ids, axis=0)
            loss = keras.ops.sum(looked_up * 0.5 + looked_up**2)
        optimizer.apply(tape.gradient(loss, [table]), [table])
        return loss

    bytes_of = {}
    for count in (3_000, 30_000):
        ids = np.linspace(0, rows - 1, count).astype("int32")
        before = sum(servers.traffic)
        step(ids)
        bytes_of[count] = sum(servers.traffic) - before
        assert servers.read([table.parts], [ids[[0, 7]]])[0].tolist() == [[-0.5, -0.5]] * 2 if count == 3_000 else True
    assert bytes_of[30_000] / bytes_of[3_000] == pytest.approx(10, rel=0.2)
    assert bytes_of[30_000] < 30_000 * 3 * 4 * 2 * 1.1  # an id and two numbers, there and back


def updater_of(make: Callable[[], Any], constraint: Any = None) -> RowUpdater:
    store = Store()
    optimizer = make()
    recipe = (type(optimizer), {**optimizer.get_config(), "learning_rate": 0.0}, {})
    return RowUpdater(
        lambda rows: Updater(recipe, (rows, 3), "float32", "v", constraint, store._device), (3,), "float32"
    )


@pytest.mark.parametrize(
    ("make", "exact", "separate"),
    [
        (lambda: keras.optimizers.SGD(), True, True),
        (lambda: keras.optimizers.Adagrad(), True, True),
        (lambda: keras.optimizers.SGD(weight_decay=1e-4), False, True),
        (lambda: keras.optimizers.SGD(momentum=0.9), False, True),
        (lambda: keras.optimizers.Adam(), False, True),
        (lambda: keras.optimizers.Ftrl(), False, True),
        (lambda: keras.optimizers.Lamb(), False, False),
        (lambda: keras.optimizers.Adafactor(), False, False),
    ],
)
def test_optimizers_are_told_apart_by_trial(make: Callable[[], Any], exact: bool, separate: bool) -> None:
    found = updater_of(make)
    assert (found.exact, found.separate) == (exact, separate)


def test_a_constraint_over_rows_needs_them_all() -> None:
    found = updater_of(lambda: keras.optimizers.SGD(), keras.constraints.MaxNorm(0.5, axis=0))
    assert (found.exact, found.separate) == (False, False)


def test_rows_that_are_accumulated_wait_for_the_update() -> None:
    """Also in a large table: an update moves rows that its own gradient does not touch."""
    make = lambda: keras.optimizers.SGD(gradient_accumulation_steps=2)  # noqa: E731
    recipe = (keras.optimizers.SGD, {**make().get_config(), "learning_rate": 0.0}, {})
    store, rows = Store(), np.array([[1.0], [3.0]], "float32")
    for name in ("whole", "rows"):
        store.create(name, StoredPart(np.zeros((5, 1), "float32"), lazy=True))
    store.define_optimizer("sgd", recipe)
    for step, ids in enumerate(([0, 1], [1, 4], [2, 3], [0, 4])):
        whole = np.zeros((5, 1), "float32")
        whole[ids] = rows
        store.apply("whole", whole, "sgd", step, 1.0, None)
        store.apply("rows", rows, "sgd", step, 1.0, None, np.array(ids))
    np.testing.assert_array_equal(store.read("rows")[0], store.read("whole")[0])
    np.testing.assert_allclose(store.read("rows")[0].ravel(), [-1.0, -2.0, -0.5, -1.5, -3.0])


def test_rows_that_do_not_exist_are_refused(servers: Servers) -> None:
    table = keras.Variable(np.zeros((6, 2), "float32"))
    placement, _ = placed(servers, [table])
    name = placement.name_of(keras.optimizers.SGD(1.0))
    part = Location(table.parts[0].server, table.parts[0].name)
    more = {"optimizer": name, "iterations": 0, "rate": 1.0}
    for ids in ([3], [-1]):
        with pytest.raises(InputError, match="it has 3"):
            servers.read([[part]], [np.array(ids)])
        with pytest.raises(InputError, match="it has 3"):
            servers.change([Change("apply", [part], RowChange(np.array(ids), np.ones((1, 2), "float32")), more)])
    with pytest.raises(InputError, match="shape"):
        servers.change([Change("apply", [part], RowChange(np.array([1]), np.ones((1, 3), "float32")), more)])
    assert table.numpy().tolist() == [[0.0, 0.0]] * 6


def test_who_reads_a_table_has_one_moments_value() -> None:
    store = Store()
    store.create("table", StoredPart(np.zeros((4, 1), "float32")))
    store.define_optimizer("sgd", (keras.optimizers.SGD, {}, {}))

    def push() -> None:
        store.apply("table", np.ones((1, 1), "float32"), "sgd", 0, 1.0, None, np.array([2]))

    before, _ = store.read("table")
    push()
    between, version = store.read("table")
    push()
    assert (before[2, 0], between[2, 0], store.read("table")[0][2, 0], version) == (0.0, -1.0, -2.0, 1)
