"""TensorFlow's tutorial "Multi-worker training with Estimator": a model_fn, an input_fn, `train_and_evaluate`.

Run it:
    python examples/estimator.py                 # all GPUs; without any, the CPU
    python examples/estimator.py --devices 4     # four virtual CPU devices
    stratagem run --workers 2 --evaluator examples/estimator.py --model-dir FOLDER

What differs from the tutorial: the imports, the data (arrays), and Keras's names for TensorFlow's. The batch is that of
one replica: MNIST on 4 replicas is 234 steps of 4 x 64 images.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import digits

import stratagem
from stratagem import keras
from stratagem.estimator import EstimatorSpec, EvalSpec, ModeKeys, RunConfig, TrainSpec, optimizers

BATCH_SIZE = 64
BUFFER_SIZE = 10000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    parser.add_argument("--devices", type=int, help="train on so many virtual CPU devices")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--max-steps", type=int, help="where to stop; without it, after an epoch")
    parser.add_argument("--model-dir", help="folder for checkpoints: started again, training goes on there")
    options = parser.parse_args()
    if options.devices:
        stratagem.testing.virtual_devices(options.devices)

    def input_fn(mode: str, input_context: Any = None) -> stratagem.data.Dataset:
        train, test = digits.load(options.data)
        images, labels = train if mode == ModeKeys.TRAIN else test
        dataset = stratagem.data.Dataset.from_tensor_slices((images[..., None], labels))
        if input_context:
            dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        dataset = dataset.cache().shuffle(BUFFER_SIZE)
        if mode == ModeKeys.TRAIN and options.max_steps:
            dataset = dataset.repeat()
        return dataset.batch(BATCH_SIZE)

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        model = keras.Sequential(
            [
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        logits = model(features, training=False)

        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions={"logits": logits})

        optimizer = optimizers.GradientDescentOptimizer(learning_rate=options.learning_rate)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)(labels, logits)
        loss = keras.ops.sum(loss) * (1.0 / BATCH_SIZE)
        if mode == ModeKeys.EVAL:
            return EstimatorSpec(mode, loss=loss)

        step = stratagem.estimator.get_or_create_global_step()
        return EstimatorSpec(mode=mode, loss=loss, train_op=optimizer.minimize(loss, step))

    strategy = stratagem.MultiWorkerMirroredStrategy()
    config = RunConfig(train_distribute=strategy)
    classifier = stratagem.estimator.Estimator(model_fn=model_fn, model_dir=options.model_dir, config=config)
    result = stratagem.estimator.train_and_evaluate(
        classifier,
        train_spec=TrainSpec(input_fn=input_fn, max_steps=options.max_steps),
        eval_spec=EvalSpec(input_fn=input_fn, start_delay_secs=0, throttle_secs=0),
    )
    if strategy.is_chief or classifier.config.task_type == "evaluator":
        print(result)


if __name__ == "__main__":
    main()
