"""A PyDataset: its epochs, its threads and processes."""

from __future__ import annotations

import threading
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.feed.kinds.kinds import (
    BATCH,
    Endless,
    Rotating,
    Sequence,
    alone,
    batch,
    model,
    read,
)

from stratagem.core.errors import InputError, UsageError
from stratagem.data.batches import whole
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.whole_batches import WholeBatches


class Longer(Rotating):
    """Two epochs of two batches are a pass."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        x, y = batch(np.arange(BATCH))
        return x, 0 * y + self.heard.count("end")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("steps", [None, 2])
def test_a_pydataset_hears_of_epochs_as_of_keras(workers: int, steps: int | None) -> None:
    """Keras 3 tells of an end before `fit`, and before each `evaluate`."""
    heard = []
    for made in (model(), keras.Sequential([keras.layers.Dense(1)])):
        made.compile(keras.optimizers.SGD(0.1), "mse")
        made.train_on_batch(*Sequence()[0])  # a model that is not built reads a batch before
        data, validation, alone = Longer(workers=workers), Sequence(), Sequence()
        made.fit(data, epochs=3, steps_per_epoch=steps, verbose=0, validation_data=validation)
        made.evaluate(alone, verbose=0)
        heard.append((data.heard, validation.heard, alone.heard))
    assert heard[0] == heard[1]
    once = ["begin", "end"]
    assert heard[0] == (["end", *once * 3], ["end", *once] * 3, ["end", *once])


def test_threads_read_nothing_before_the_epoch_has_ended() -> None:
    """A pass lasts for two epochs: what was read ahead in the first is read again."""
    seen = []
    made = model(metrics=[keras.metrics.MeanMetricWrapper(lambda y_true, _: y_true, name="epoch")])
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(logs["epoch"]))
    made.fit(Longer(workers=2), epochs=3, steps_per_epoch=2, verbose=0, shuffle=False, callbacks=[callback])
    assert seen == [1, 2, 3]


def test_an_endless_pydataset_in_fit() -> None:
    history = model().fit(Endless(workers=2), steps_per_epoch=3, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_a_pydataset_cannot_unhear_an_epoch() -> None:
    class Plain(keras.utils.PyDataset):
        __len__, __getitem__ = Sequence.__len__, Sequence.__getitem__

    for made, unheard in ((Plain(), True), (Sequence(), False)):
        source = WholeBatches(input_of(made, lambda _, __: 1, 1), alone(), rows_of=whole, pass_is_epoch=True)
        state = source.position()
        assert [len(rows.data[1]) for rows in source.batches()] == [4, 4, 2]
        if unheard:
            assert len(list(source.batches(state=state))) == 3
        else:
            with pytest.raises(UsageError, match="has already been called for 1 epochs"):
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
