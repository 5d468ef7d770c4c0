"""An Estimator under parameter servers, the same program in every task: `python estimates_with_servers.py FOLDER`."""

from __future__ import annotations

import logging
import sys
from typing import Any

import keras
import numpy as np

import stratagem
from stratagem.estimator import Estimator, EstimatorSpec, EvalSpec, RunConfig, TrainSpec, train_and_evaluate

X = np.arange(48, dtype="float32").reshape(16, 3) / 48


def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    loss = keras.ops.mean((keras.layers.Dense(1)(features) - labels) ** 2)
    return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.Adam(0.05).minimize(loss))


def input_fn(mode: str, input_context: stratagem.InputContext | None = None) -> Any:
    dataset = stratagem.data.Dataset.from_tensor_slices((X, X.sum(1, keepdims=True)))
    if mode == "train":
        assert input_context is not None
        print(f"reads part {input_context.input_pipeline_id} of {input_context.num_input_pipelines}", flush=True)
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id).repeat()
    return dataset.batch(4)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    strategy = stratagem.ParameterServerStrategy()  # workers and servers do not come past it
    config = RunConfig(train_distribute=strategy, save_summary_steps=None, save_checkpoints_steps=30)
    estimator = Estimator(model_fn, sys.argv[1], config)
    evaluation = EvalSpec(input_fn, steps=None, start_delay_secs=0, throttle_secs=0)
    print("result:", train_and_evaluate(estimator, TrainSpec(input_fn, max_steps=60), evaluation), flush=True)


if __name__ == "__main__":
    main()
