"""Names with another meaning than in TensorFlow (docs/migrating.md, "What behaves differently")."""

from __future__ import annotations

from typing import Final

_SAVED: Final = (
    "The folder contains the model in Keras 3's format, not TensorFlow's SavedModel. TensorFlow Serving cannot read it."
)

_NAMES: Final = {
    "An `if` or loop on a tensor is rewritten only if it contains no `raise`.": "tf.autograph",
    "It has no effect: functions are compiled, and all other code runs at once.": """
        tf.compat.v1.disable_eager_execution tf.compat.v1.disable_v2_behavior tf.compat.v1.enable_eager_execution
    """,
    "JAX stores 64-bit values in 32 bits, unless JAX_ENABLE_X64=1 is set. NumPy values in a dataset keep 64 bits.": (
        "tf.complex128 tf.double tf.float64 tf.int64 tf.uint64"
    ),
    "It has no effect: functions are compiled.": "tf.config.run_functions_eagerly",
    "The function runs as Python code on the NumPy values of each element, including its `if` and `print`.": (
        "tf.data.Dataset.map"
    ),
    "A seed gives a different order than in TensorFlow. Without a seed, all workers use the chief's order.": (
        "tf.data.Dataset.shuffle"
    ),
    "It has no effect: replicas and parameter servers decide where values are stored.": "tf.device",
    "A batch that does not divide over the replicas gives the true mean over the global batch (TensorFlow: the mean of "
    "the replicas' means), and the order of data is the same for every number of workers.": """
        tf.distribute.MirroredStrategy tf.distribute.MultiWorkerMirroredStrategy
        tf.distribute.experimental.CentralStorageStrategy tf.distribute.experimental.MultiWorkerMirroredStrategy
    """,
    "It has not been tried on a TPU.": """
        tf.distribute.TPUStrategy tf.distribute.cluster_resolver.TPUClusterResolver
        tf.distribute.experimental.TPUStrategy
    """,
    "It is a hint: XLA chooses how devices communicate (Gloo on CPUs, NCCL on GPUs).": """
        tf.distribute.experimental.CollectiveCommunication tf.distribute.experimental.CommunicationImplementation
        tf.distribute.HierarchicalCopyAllReduce tf.distribute.NcclAllReduce tf.distribute.ReductionToOneDevice
    """,
    "The format is NumPy's, not TensorFlow's. Only Stratagem can read what it has written.": (
        "tf.io.parse_tensor tf.io.serialize_tensor"
    ),
    "It is Stratagem's own. It continues at the same batch, with the same random numbers and order of data.": (
        "tf.keras.callbacks.BackupAndRestore"
    ),
    "Only the chief writes; on the other workers of a cluster it does nothing.": """
        tf.keras.callbacks.CSVLogger tf.keras.callbacks.ModelCheckpoint tf.keras.callbacks.TensorBoard
        tf.summary.create_file_writer
    """,
    "The moving statistics of the replicas are averaged after each step, weighted by rows. In Keras 3 under TensorFlow "
    "they drift apart.": "tf.keras.layers.BatchNormalization",
    "A compiled loss covers the global batch, as on one device (TensorFlow: the rows of each replica).": (
        "tf.keras.losses.Dice tf.keras.losses.Tversky"
    ),
    "A custom metric gets labels of shape (n,) unchanged, as in Keras 3. Keras 2 made them a column if the outputs "
    "had the shape (n, 1). If the metric multiplies or compares the two, reshape the labels in update_state.": (
        "tf.keras.metrics.Metric"
    ),
    _SAVED: "tf.keras.models.save_model tf.saved_model.save",
    "The images or texts are read without TensorFlow. A seed gives a different order than in TensorFlow.": """
        tf.keras.preprocessing.image_dataset_from_directory tf.keras.preprocessing.text_dataset_from_directory
        tf.keras.utils.image_dataset_from_directory tf.keras.utils.text_dataset_from_directory
    """,
    "The same seed gives different numbers than in TensorFlow. Each replica draws its own numbers.": (
        "tf.random.normal tf.random.set_seed tf.random.truncated_normal tf.random.uniform"
    ),
}
MEANINGS: Final = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
"""Differences from TensorFlow, by name."""

_STATEFUL: Final = "A stateful RNN works on one replica. On several replicas it is refused."
ARGUMENTS: Final = {
    ("tf.keras.layers.GRU", "stateful"): _STATEFUL,
    ("tf.keras.layers.LSTM", "stateful"): _STATEFUL,
    ("tf.keras.layers.RNN", "stateful"): _STATEFUL,
    ("tf.keras.layers.SimpleRNN", "stateful"): _STATEFUL,
    (".compile", "jit_compile"): "The step is always compiled on several replicas.",
    (".compile", "run_eagerly"): "Steps that are not compiled are slow on several replicas.",
}
"""The same for arguments of a call that are present and not None or False; `.name` is a method of any object."""

FOLDER: Final = _SAVED
"""The meaning of `model.save` with a path without an ending."""

OTHER_PACKAGES: Final = {
    "official": "The TensorFlow Model Garden needs TensorFlow.",
    "tensorflow_addons": "It needs TensorFlow. Keras 3 itself has AdamW, Lamb, GroupNormalization, F1Score and more.",
    "tensorflow_datasets": (
        "It needs TensorFlow to prepare data. `tfds.data_source(name)` reads prepared data without TensorFlow, and "
        "returns a sequence for `Dataset.from_generator` or a PyDataset."
    ),
    "tensorflow_estimator": "Write `from stratagem.tf import estimator`.",
    "tensorflow_hub": (
        "It needs TensorFlow, and its layers run only there. keras.applications and KerasHub have models for JAX."
    ),
    "tensorflow_io": "It needs TensorFlow.",
    "tensorflow_model_optimization": "It needs TensorFlow. Keras 3 has `model.quantize`.",
    "tensorflow_probability": "`tensorflow_probability.substrates.jax` is the same on JAX.",
    "tensorflow_text": "It needs TensorFlow. Tokenizers of KerasHub and plain Python in `Dataset.map` work without it.",
    "tensorflow_transform": "It needs TensorFlow.",
    "tf_slim": "It needs TensorFlow 1's graphs. Write the network with keras.layers.",
}
"""Packages beside TensorFlow, and what to know about them."""

KERAS_PACKAGES: Final = {"keras_cv", "keras_hub", "keras_nlp", "keras_tuner", "kerastuner"}
"""Packages that import Keras."""

KERAS_FIRST: Final = (
    "It imports Keras, and Keras uses TensorFlow as its backend by default. Import stratagem.tf before it, or set "
    "KERAS_BACKEND=jax in the environment."
)
COMPUTED: Final = "The program decides only when it runs which name it uses."
