"""Train to the end of the first step; say when each part of the start-up had ended.

Under `stratagem run` with its strategy, else as plain Keras. The last line that it prints is JSON: of each part its
name, its end in seconds on the clock that all processes of a machine have in common, and for how long and how many
programs JAX had compiled or loaded until then.
"""

from __future__ import annotations

import json
import os
import time

compiling: list[float] = []
ends: list[tuple[str, float, float, int]] = []


def end_of(part: str) -> None:
    ends.append((part, time.monotonic(), sum(compiling), len(compiling)))


end_of("launcher, interpreter")

import jax
import numpy as np

end_of("import NumPy, JAX")

import keras
from network import ROWS_PER_WORKER, compiled_network

end_of("import Keras")


def note(event: str, seconds: float, **_: object) -> None:
    if event.endswith("/backend_compile_duration"):
        compiling.append(seconds)


jax.monitoring.register_event_duration_secs_listener(note)
rows = ROWS_PER_WORKER
if "STRATAGEM_LAUNCHED" in os.environ:
    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    rows *= strategy.num_replicas_in_sync
    end_of("import Stratagem, meet")
    with strategy.scope():
        model = compiled_network(keras)
else:
    model = compiled_network(keras)
end_of("model")
step_ended = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: end_of("first step"))
x, y = np.zeros((rows, 28, 28), "float32"), np.zeros(rows, "int64")
model.fit(x, y, batch_size=rows, verbose=0, callbacks=[step_ended])
print("START " + json.dumps(ends), flush=True)
