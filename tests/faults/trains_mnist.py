"""What `kill_anywhere.py` trains: the tutorials' network, shuffled data, a backup every 7 steps."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import digits
import keras
import numpy as np
from multi_worker import make_model

import stratagem

EPOCHS, STEPS = 3, 40


def main(folder: str) -> None:
    strategy = stratagem.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)  # a run that is killed before its first step begins anew
    train, _ = digits.load(os.environ.get("STRATAGEM_DATA"))
    dataset = stratagem.data.Dataset.from_tensor_slices(train).shuffle(60000).repeat().batch(128)
    with strategy.scope():
        model = make_model()
    backup = stratagem.callbacks.BackupAndRestore(f"{folder}/backup", save_freq=7)
    model.fit(dataset, epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=[backup])
    np.savez(f"{folder}/weights-{strategy.worker_index}.npz", *model.get_weights())


if __name__ == "__main__":
    main(sys.argv[1])
