"""What is particular to one kind of input: epochs of a PyDataset, seeds, what each library nests and refuses."""

from __future__ import annotations

import itertools
import threading
from typing import Any, ClassVar

import keras
import numpy as np
import pytest
from tests.unit.feed.kinds.kinds import BATCH, ROWS, Endless, Rotating, Sequence, batch, generator, torch_loader

import stratagem
from stratagem.core.errors import InputError, UsageError
from stratagem.data.batches import whole
from stratagem.feed.adapter import make_adapter
from stratagem.feed.batch import as_numpy
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.whole_batches import WholeBatches

ALONE = stratagem.OneDeviceStrategy("cpu:0")


def model(**compile_arguments: Any) -> Any:
    with stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
        made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        made.compile("sgd", "mse", **compile_arguments)
    return made


def read(value: Any, *, seed: int = 1, count: int = 9) -> list[list[int]]:
    source = WholeBatches(input_of(value, lambda _, __: seed, 2), ALONE, rows_of=whole)
    try:
        return [rows.data[1].tolist() for rows in itertools.islice(source.batches(), count)]
    finally:
        source.close()


# PyDataset ---------------------------------------------------------------------------------------


class Longer(Rotating):
    """Two epochs of two batches are a pass."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        x, y = batch(np.arange(BATCH))
        return x, 0 * y + self.heard.count("end")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("steps", [None, 2])
def test_a_pydataset_hears_of_each_epoch_once(workers: int, steps: int | None) -> None:
    data = Longer(workers=workers)
    model().fit(data, epochs=3, steps_per_epoch=steps, verbose=0, validation_data=Sequence())
    assert data.heard == ["begin", "end"] * 3


def test_threads_read_nothing_before_the_epoch_has_ended() -> None:
    """A pass lasts for two epochs: what was read ahead in the first is read again."""
    seen = []
    made = model(metrics=[keras.metrics.MeanMetricWrapper(lambda y_true, _: y_true, name="epoch")])
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(logs["epoch"]))
    made.fit(Longer(workers=2), epochs=3, steps_per_epoch=2, verbose=0, shuffle=False, callbacks=[callback])
    assert seen == [0, 1, 2]


def test_an_endless_pydataset_in_fit() -> None:
    history = model().fit(Endless(workers=2), steps_per_epoch=3, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_a_pydataset_cannot_unhear_an_epoch() -> None:
    class Plain(keras.utils.PyDataset):
        __len__, __getitem__ = Sequence.__len__, Sequence.__getitem__

    for made, unheard in ((Plain(), True), (Sequence(), False)):
        source = WholeBatches(input_of(made, lambda _, __: 1, 1), ALONE, rows_of=whole, pass_is_epoch=True)
        state = source.position()
        assert [len(rows.data[1]) for rows in source.batches()] == [4, 4, 2]
        if unheard:
            assert len(list(source.batches(state=state))) == 3
        else:
            with pytest.raises(UsageError, match="has heard of 1 epochs"):
                source.batches(state=state)


def test_what_a_thread_raises_ends_fit_and_the_threads() -> None:
    class Broken(Sequence):
        def __getitem__(self, index: int) -> Any:
            if index == 2:
                raise OSError("no such picture")
            return super().__getitem__(index)

    with pytest.raises(OSError, match="no such picture"):
        model().fit(Broken(workers=2), verbose=0, shuffle=False)


def test_a_pydataset_that_does_not_pickle() -> None:
    data = Sequence(workers=1, use_multiprocessing=True)
    data.lock = threading.Lock()
    with pytest.raises(InputError, match=r"Sequence cannot be sent(.|\n)*use_multiprocessing=False"):
        read(data)


# Generators --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_generator_that_is_used_up_is_not_an_empty_epoch() -> None:
    with pytest.raises(UsageError, match=r"found it used up(.|\n)*steps_per_epoch"):
        model().fit(itertools.islice(generator(), 4), epochs=2, verbose=0)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_class_weight_for_a_generator() -> None:
    history = [
        model().fit(itertools.islice(generator(), 2), class_weight=weights, verbose=0).history["loss"][0]
        for weights in (None, dict.fromkeys(range(ROWS), 0.0))
    ]
    assert history[0] > 0
    assert history[1] == 0


def test_a_position_behind_what_was_read_cannot_be_restored() -> None:
    source = WholeBatches(input_of(generator(), lambda _, seed: seed, 1), ALONE, rows_of=whole)
    reader = source.batches()
    state = reader.get_state()
    next(reader)
    with pytest.raises(UsageError, match="Make it anew"):
        next(source.batches(state=state))
    with pytest.raises(InputError, match="is 3"):
        source.resume(3)


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


# Hugging Face, torch, TensorFlow -------------------------------------------------------------------


def test_rows_of_hugging_face_must_be_batched() -> None:
    datasets = pytest.importorskip("datasets")
    with pytest.raises(InputError, match="from_source"):
        model().fit(datasets.Dataset.from_dict({"x": [1.0]}), verbose=0)


def test_the_order_of_torch_is_the_chiefs_and_another_one_in_each_pass() -> None:
    torch = pytest.importorskip("torch")
    loader = torch_loader(shuffle=True)
    sampler, state = loader.sampler, torch.get_rng_state()
    assert read(loader, seed=3) == read(torch_loader(shuffle=True), seed=3) != read(loader, seed=4)
    source = WholeBatches(input_of(loader, lambda _, __: 3, 2), ALONE, rows_of=whole)
    passes = [[rows.data[1].tolist() for rows in source.batches()] for _ in range(2)]
    assert passes[0] == read(loader, seed=3) != passes[1]
    assert loader.sampler is sampler
    assert sampler.generator is None
    # One number is drawn from torch's own generator for all passes, as torch does for each.
    torch.set_rng_state(state)
    drawn = []
    input_of(loader, lambda _, seed: drawn.append(seed) or seed, 2)
    torch.set_rng_state(state)
    assert drawn == [int(torch.empty((), dtype=torch.int64).random_())]


def test_a_generator_of_the_users_gives_torchs_own_order() -> None:
    torch = pytest.importorskip("torch")
    loaders = [torch_loader(shuffle=True, generator=torch.Generator().manual_seed(8)) for _ in range(2)]
    source = WholeBatches(input_of(loaders[0], lambda _, __: 1, 2), ALONE, rows_of=whole)
    for _ in range(2):
        assert [rows.data[1].tolist() for rows in source.batches()] == [y.tolist() for _, y in loaders[1]]


def test_a_resumed_torch_loader_decodes_nothing_twice() -> None:
    data = pytest.importorskip("torch.utils.data")

    class Noting(list):
        read: ClassVar[list[int]] = []

        def __getitem__(self, index: Any) -> Any:
            self.read.append(index)
            return super().__getitem__(index)

    examples = Noting(batch(row) for row in range(ROWS))
    batches = input_of(data.DataLoader(examples, batch_size=BATCH), lambda _, __: 1, 1)
    source = WholeBatches(batches, ALONE, rows_of=whole)
    source.resume({"passes": [3, 3], "batches": 2, "seed": 1, "generators": []})
    assert [rows.data[1].tolist() for rows in source.batches()] == [[8, 9]]
    assert examples.read == [8, 9]


def test_torch_loaders_that_are_no_global_order() -> None:
    data = pytest.importorskip("torch.utils.data")
    with pytest.raises(InputError, match="Leave in_order out"):
        read(torch_loader(in_order=False))
    sampler = data.DistributedSampler(range(ROWS), num_replicas=2, rank=0)
    with pytest.raises(InputError, match="2 workers has a DistributedSampler"):
        read(torch_loader(sampler=sampler))
    assert len(input_of(torch_loader(sampler=sampler), lambda _, __: 1, 1).sample([], 0)) == 2  # a worker's own


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    values = {
        "narrow": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "learned": torch.ones(2, requires_grad=True),
        "sparse": torch.tensor([[0.0, 3.0]]).to_sparse(),
    }
    arrays = as_numpy(values)
    assert arrays["narrow"].dtype == "bfloat16"
    assert arrays["narrow"].astype("float32").tolist() == [1.5, -2.0]
    assert arrays["learned"].tolist() == [1, 1]
    assert arrays["sparse"].tolist() == [[0, 3]]


def test_tensors_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    values = (tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[0, 4]]), tf.constant([5]))
    assert [array.tolist() for array in as_numpy(values)] == [[[1, 0], [2, 3]], [[0, 4]], [5]]


def test_tf_data_in_fit() -> None:
    tf = pytest.importorskip("tensorflow")
    x, y = batch(np.arange(ROWS))
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    made = model()
    plain = keras.models.clone_model(made)
    plain.set_weights(made.get_weights())
    plain.compile("sgd", "mse")
    batched = dataset.shuffle(ROWS, seed=4).batch(BATCH).map(lambda x, y: (x / 10, y)).prefetch(1)
    np.testing.assert_allclose(
        made.evaluate(batched, verbose=0), plain.evaluate(x / 10, y, batch_size=BATCH, verbose=0), rtol=1e-6
    )
    with pytest.raises(InputError, match="batch dimension"):
        made.fit(dataset.map(lambda x, y: (x, y)), verbose=0)
    with pytest.raises(InputError, match=r"shuffle\(buffer_size, seed=1\)"):
        read(dataset.shuffle(ROWS).batch(BATCH).map(lambda x, y: (x, y)))


# Grain -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_grain_nests_as_keras_does() -> None:
    grain = pytest.importorskip("grain")
    listed = grain.MapDataset.range(ROWS).map(lambda row: list(batch(row))).batch(BATCH)
    named = grain.MapDataset.range(ROWS).map(lambda row: {"x": batch(row)[0]}).batch(BATCH)
    losses = model().fit(listed, verbose=0).history["loss"]
    assert len(losses) == 1
    outputs = model().predict(named.map(lambda rows: rows["x"]), verbose=0)
    assert outputs.shape == (ROWS, 1)


def test_threads_of_grain_end_when_reading_fails() -> None:
    grain = pytest.importorskip("grain")

    def fails(row: int) -> Any:
        if row == 9:
            raise OSError("no such picture")
        return batch(row)

    rows = grain.MapDataset.range(ROWS).map(fails).batch(BATCH)
    for dataset in (rows, rows.to_iter_dataset()):
        adapter = make_adapter(stratagem.OneDeviceStrategy("cpu:0"), {"x": dataset})
        with pytest.raises(OSError, match="no such picture"):
            list(adapter.get_jax_iterator())
        adapter.close()
