"""Two workers save a module as one, and load it under their strategy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def everybody_saves_a_module(folder: str) -> dict[str, Any]:
    import stratagem.tf as tf

    class Line(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = tf.Variable(3.0)

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def __call__(self, x: Any) -> Any:
            return self.slope * x

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        module = Line()
    module.slope.assign(4.0)
    tf.saved_model.save(module, f"{folder}/module")
    own = f"{folder}/worker{strategy.cluster_resolver.task_id}"
    tf.saved_model.save(module, own)  # as in the tutorials: the others save beside the chief
    with strategy.scope():
        loaded = [tf.saved_model.load(path) for path in (f"{folder}/module", own)]
    total = [strategy.reduce("SUM", strategy.run(each, args=(tf.ones([2]),)), axis=None) for each in loaded]
    with tf.io.gfile.GFile(f"{own}/saved_model.safetensors", "rb") as file:
        return {"totals": [value.numpy().tolist() for value in total], "bytes": len(file.read())}


def test_all_workers_save_a_module(tmp_path: Path) -> None:
    chief, other = (result.value for result in run_workers(everybody_saves_a_module, 2, args=[str(tmp_path)]))
    assert chief == other
    assert chief["totals"] == [[8.0, 8.0], [8.0, 8.0]]
    assert sorted(os.listdir(tmp_path)) == ["module", "worker0", "worker1"]
