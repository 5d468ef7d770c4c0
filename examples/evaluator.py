"""Two workers train while a third process evaluates every checkpoint, so that training never waits for it.

Run it:
    stratagem run --workers 2 --evaluator examples/evaluator.py

All three run this program; TF_CONFIG tells each what it is. The evaluator ends when it has evaluated the last
checkpoint of a chief that is gone.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import digits
from multi_worker import make_model

import stratagem
from stratagem import keras


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=70, help="steps in an epoch")
    parser.add_argument("--checkpoints", default=os.path.join(tempfile.gettempdir(), "stratagem-evaluator"))
    parser.add_argument("--log-dir", help="where to write event files for TensorBoard")
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    options = parser.parse_args()

    strategy = stratagem.MultiWorkerMirroredStrategy()
    (x_train, y_train), test = digits.load(options.data)
    with strategy.scope():
        model = make_model()

    if strategy.cluster_resolver.task_type == "evaluator":
        stratagem.train.SidecarEvaluator(model, test, options.checkpoints, log_dir=options.log_dir).start()
        return

    batch_size = 64 * strategy.num_replicas_in_sync
    dataset = stratagem.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(60000).repeat().batch(batch_size)
    checkpoint = stratagem.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = stratagem.train.CheckpointManager(checkpoint, options.checkpoints, max_to_keep=3)
    save = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: manager.save())
    model.fit(dataset, epochs=options.epochs, steps_per_epoch=options.steps, callbacks=[save])


if __name__ == "__main__":
    main()
