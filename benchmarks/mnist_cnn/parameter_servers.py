"""Training with parameter servers, for any module with the interface of `tf` and any with the interface of Keras.

https://www.tensorflow.org/tutorials/distribute/parameter_server_training
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from network import ROWS_PER_WORKER
from turns import Turns


def loop_in_turns(
    tf: Any, keras: Any, strategy: Any, coordinator: Any, model: Any, turns: Turns, dataset_of: Callable[..., Any]
) -> None:
    """Run the tutorial's custom loop; a turn is an epoch.

    Args:
        tf: TensorFlow or Stratagem.
        keras: Keras 3, or `tf_keras`.
        strategy: A ParameterServerStrategy.
        coordinator: Its ClusterCoordinator.
        model: What `compiled_network` returned in the strategy's scope.
        turns: When to run an epoch.
        dataset_of: Makes a dataset of images and labels.
    """
    x, y = turns.rows(ROWS_PER_WORKER)
    optimizer = model.optimizer
    with strategy.scope():
        mean, accuracy = keras.metrics.Mean(), keras.metrics.SparseCategoricalAccuracy()
    losses_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def dataset_fn(_: Any) -> Any:
        return dataset_of((x, y)).repeat().batch(ROWS_PER_WORKER)

    @tf.function
    def step(iterator: Any) -> None:
        def replica_fn(images: Any, labels: Any) -> None:
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                loss = tf.nn.compute_average_loss(losses_of(labels, logits))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            mean.update_state(loss)
            accuracy.update_state(labels, logits)

        strategy.run(replica_fn, args=next(iterator))

    dataset = coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(dataset_fn))
    iterator = iter(dataset)
    while True:
        for metric in (mean, accuracy):
            metric.reset_state()
        for _ in range(turns.steps):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        if not turns.finish(float(mean.result())):
            break
