"""A transformer's block with a schedule, masks and a masked loss of its own, in a custom loop."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
VOCAB, LENGTH, D_MODEL, BATCH = 12, 8, 16, 16
random = np.random.default_rng(0)
lengths = random.integers(3, LENGTH + 1, 120)
inputs = random.integers(1, VOCAB, (120, LENGTH)) * (np.arange(LENGTH) < lengths[:, None])
targets = np.where(inputs > 0, VOCAB - inputs, 0)  # the task: each token turned round; 0 is padding


def positional_encoding(length, depth):
    depth = depth / 2
    positions = np.arange(length)[:, np.newaxis]
    depths = np.arange(depth)[np.newaxis, :] / depth
    angle_rads = positions * (1 / (10000**depths))
    return tf.cast(np.concatenate([np.sin(angle_rads), np.cos(angle_rads)], axis=-1), dtype=tf.float32)


class PositionalEmbedding(tf.keras.layers.Layer):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.d_model = d_model
        self.embedding = tf.keras.layers.Embedding(vocab_size, d_model, mask_zero=True)
        self.pos_encoding = positional_encoding(length=32, depth=d_model)

    def compute_mask(self, *args, **kwargs):
        return self.embedding.compute_mask(*args, **kwargs)

    def call(self, x):
        length = tf.shape(x)[1]
        x = self.embedding(x)
        x *= tf.math.sqrt(tf.cast(self.d_model, tf.float32))
        return x + self.pos_encoding[tf.newaxis, :length, :]


class EncoderLayer(tf.keras.layers.Layer):
    def __init__(self, *, d_model, num_heads, dff, dropout_rate=0.1):
        super().__init__()
        self.mha = tf.keras.layers.MultiHeadAttention(num_heads=num_heads, key_dim=d_model, dropout=dropout_rate)
        self.layernorm = tf.keras.layers.LayerNormalization()
        self.add = tf.keras.layers.Add()
        self.seq = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(dff, activation="relu"),
                tf.keras.layers.Dense(d_model),
                tf.keras.layers.Dropout(dropout_rate),
            ]
        )

    def call(self, x):
        x = self.layernorm(self.add([x, self.mha(query=x, value=x, key=x)]))
        return self.layernorm(self.add([x, self.seq(x)]))


class Encoder(tf.keras.Model):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.pos_embedding = PositionalEmbedding(vocab_size, d_model)
        self.enc_layers = [EncoderLayer(d_model=d_model, num_heads=2, dff=32) for _ in range(1)]
        self.final_layer = tf.keras.layers.Dense(vocab_size)

    def call(self, x):
        x = self.pos_embedding(x)
        for layer in self.enc_layers:
            x = layer(x)
        return self.final_layer(x)


class CustomSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, d_model, warmup_steps=40):
        super().__init__()
        self.d_model = tf.cast(d_model, tf.float32)
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = tf.cast(step, dtype=tf.float32)
        arg1 = tf.math.rsqrt(step)
        arg2 = step * (self.warmup_steps**-1.5)
        return tf.math.rsqrt(self.d_model) * tf.math.minimum(arg1, arg2)


with strategy.scope():
    model = Encoder(VOCAB, D_MODEL)
    optimizer = tf.keras.optimizers.Adam(CustomSchedule(D_MODEL), beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    train_loss = tf.keras.metrics.Mean(name="train_loss")
    train_accuracy = tf.keras.metrics.Mean(name="train_accuracy")


def masked_loss(label, pred):
    mask = label != 0
    loss = loss_object(label, pred)
    mask = tf.cast(mask, dtype=loss.dtype)
    loss *= mask
    tokens = tf.distribute.get_replica_context().all_reduce("sum", tf.reduce_sum(mask))
    return tf.reduce_sum(loss) / tokens, loss, mask


def train_step(inp, tar):
    with tf.GradientTape() as tape:
        predictions = model(inp, training=True)
        loss, per_token, mask = masked_loss(tar, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    matches = tf.equal(tf.cast(tar, tf.int64), tf.argmax(predictions, axis=2))
    train_loss.update_state(per_token, sample_weight=mask)
    train_accuracy(tf.cast(matches, tf.float32), sample_weight=mask)


train_step_signature = [
    tf.TensorSpec(shape=(None, None), dtype=tf.int64),
    tf.TensorSpec(shape=(None, None), dtype=tf.int64),
]


@tf.function
def distributed_step(inp, tar):
    strategy.run(train_step, args=(inp, tar))


dataset = (
    tf.data.Dataset.from_tensor_slices((inputs.astype("int64"), targets.astype("int64"))).shuffle(120).batch(BATCH)
)
dist_dataset = strategy.experimental_distribute_dataset(dataset)
results = []
for epoch in range(12):
    train_loss.reset_states()
    train_accuracy.reset_states()
    for batch, (inp, tar) in enumerate(dist_dataset):
        distributed_step(inp, tar)
        if batch % 4 == 0 and epoch % 4 == 0:
            print(
                f"Epoch {epoch + 1} Batch {batch} Loss {train_loss.result():.4f} Accuracy {train_accuracy.result():.4f}"
            )
    results.append((float(train_loss.result()), float(train_accuracy.result())))
print("trainable parameters", np.sum([np.prod(v.shape) for v in model.trainable_variables]))


@tf.function(input_signature=train_step_signature)
def evaluate(inp, tar):
    predictions = tf.argmax(model(inp, training=False), axis=-1)
    right = tf.cast(tf.logical_and(tf.equal(predictions, tf.cast(tar, predictions.dtype)), tar != 0), tf.float32)
    return tf.reduce_sum(right) / tf.reduce_sum(tf.cast(tar != 0, tf.float32))


accuracy = evaluate(tf.constant(inputs, dtype=tf.int64), tf.constant(targets, dtype=tf.int64))
print("accuracy {:.1%}".format(accuracy.numpy()))
