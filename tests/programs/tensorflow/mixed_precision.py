"""Half precision with a loss scale, in `fit` and in a custom loop under a strategy."""

import tensorflow as tf
from tensorflow.keras import layers, mixed_precision

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
mixed_precision.set_global_policy("mixed_float16")
policy = mixed_precision.global_policy()
print("Compute dtype: %s" % policy.compute_dtype)
print("Variable dtype: %s" % policy.variable_dtype)

(x_train, y_train), (x_test, y_test) = tf.keras.datasets.mnist.load_data()
x_train = x_train[:1000].reshape(-1, 784).astype("float32") / 255
x_test = x_test[:100].reshape(-1, 784).astype("float32") / 255
y_train, y_test = y_train[:1000], y_test[:100]


def make_model():
    inputs = tf.keras.Input(shape=(784,), name="digits")
    x = layers.Dense(64, activation="relu", name="dense_1")(inputs)
    x = layers.Dense(10, name="dense_logits")(x)
    outputs = layers.Activation("softmax", dtype="float32", name="predictions")(x)
    return tf.keras.Model(inputs=inputs, outputs=outputs)


with strategy.scope():
    model = make_model()
    optimizer = tf.keras.optimizers.RMSprop()
    optimizer = mixed_precision.LossScaleOptimizer(optimizer)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(reduction=tf.keras.losses.Reduction.NONE)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

batch_size = 96
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(1000, seed=0).batch(batch_size)
dist_dataset = strategy.experimental_distribute_dataset(train_dataset)


@tf.function
def train_step(x, y):
    def step_fn(x, y):
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            loss = tf.reduce_sum(loss_object(y, predictions)) / batch_size
            scaled_loss = optimizer.get_scaled_loss(loss)
        scaled_gradients = tape.gradient(scaled_loss, model.trainable_variables)
        gradients = optimizer.get_unscaled_gradients(scaled_gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        accuracy.update_state(y, predictions)
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step_fn, args=(x, y)), axis=None)


losses = []
for epoch in range(3):
    accuracy.reset_state()
    for i, (x, y) in enumerate(dist_dataset):
        loss = train_step(x, y)
        if i == 0:
            losses.append(float(loss))
            print("Epoch {}: step {}: loss={:.4f}".format(epoch, i, loss))
    print(f"Epoch {epoch}: accuracy {accuracy.result().numpy():.3f}")

print("weights", model.get_layer("dense_1").kernel.dtype, "computes", model.get_layer("dense_1").compute_dtype)
print("loss scale", float(optimizer.loss_scale))

with strategy.scope():
    fitted = make_model()
    fitted.compile(
        loss="sparse_categorical_crossentropy", optimizer=tf.keras.optimizers.RMSprop(), metrics=["accuracy"]
    )
history = fitted.fit(x_train, y_train, batch_size=batch_size, epochs=3, validation_split=0.2)
test_scores = fitted.evaluate(x_test, y_test, verbose=2)
print("Test loss:", test_scores[0])
print("Test accuracy:", test_scores[1])
