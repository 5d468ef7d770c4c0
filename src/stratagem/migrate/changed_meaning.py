"""Names with another meaning than in TensorFlow (docs/migrating.md, "What behaves differently")."""

from __future__ import annotations

from typing import Final

_SAVED: Final = (
    "The folder holds the model as Keras 3 saves it, not TensorFlow's SavedModel: TensorFlow Serving cannot read it."
)

_NAMES: Final = {
    "An `if` or loop on a tensor is rewritten only without `raise` in it.": "tf.autograph",
    "Changes nothing: functions are compiled, the rest runs at once.": """
        tf.compat.v1.disable_eager_execution tf.compat.v1.disable_v2_behavior tf.compat.v1.enable_eager_execution
    """,
    "JAX holds 64-bit values as 32-bit ones, unless JAX_ENABLE_X64=1 is set. NumPy's, in a dataset, stay wide.": (
        "tf.complex128 tf.double tf.float64 tf.int64 tf.uint64"
    ),
    "Has no effect: functions are compiled.": "tf.config.run_functions_eagerly",
    "The function runs as Python for each element, on NumPy values: its `if` and `print` too.": "tf.data.Dataset.map",
    "A seed gives another order than TensorFlow's; without one, all workers take the chief's order.": (
        "tf.data.Dataset.shuffle"
    ),
    "Has no effect: replicas and parameter servers decide where values live.": "tf.device",
    "A batch that does not divide over the replicas gives the true mean over the global batch (TensorFlow: the mean of "
    "the replicas' means), and the order of data is the same for every number of workers.": """
        tf.distribute.MirroredStrategy tf.distribute.MultiWorkerMirroredStrategy
        tf.distribute.experimental.CentralStorageStrategy tf.distribute.experimental.MultiWorkerMirroredStrategy
    """,
    "Has not been tried on a TPU.": """
        tf.distribute.TPUStrategy tf.distribute.cluster_resolver.TPUClusterResolver
        tf.distribute.experimental.TPUStrategy
    """,
    "Is a hint: XLA chooses how devices communicate (Gloo on CPUs, NCCL on GPUs).": """
        tf.distribute.experimental.CollectiveCommunication tf.distribute.experimental.CommunicationImplementation
        tf.distribute.HierarchicalCopyAllReduce tf.distribute.NcclAllReduce tf.distribute.ReductionToOneDevice
    """,
    "NumPy's format, not TensorFlow's: only Stratagem reads what it has written.": (
        "tf.io.parse_tensor tf.io.serialize_tensor"
    ),
    "Stratagem's own: goes on at the very batch, with random generators and the order of data.": (
        "tf.keras.callbacks.BackupAndRestore"
    ),
    "Only the chief writes; on the other workers of a cluster it does nothing.": """
        tf.keras.callbacks.CSVLogger tf.keras.callbacks.ModelCheckpoint tf.keras.callbacks.TensorBoard
        tf.summary.create_file_writer
    """,
    "On several replicas the moving statistics are averaged after each step, by rows; in Keras 3 under TensorFlow they "
    "drift apart.": "tf.keras.layers.BatchNormalization",
    "In a compiled loss over the global batch, as on one device (TensorFlow: of each replica's rows).": (
        "tf.keras.losses.Dice tf.keras.losses.Tversky"
    ),
    "One of your own gets labels of shape (n,) as they are, as in Keras 3. Keras 2 made them a column beside outputs "
    "of shape (n, 1): where it multiplies or compares the two, reshape the labels in update_state.": (
        "tf.keras.metrics.Metric"
    ),
    _SAVED: "tf.keras.models.save_model tf.saved_model.save",
    "The images or texts are read without TensorFlow; a seed gives another order than there.": """
        tf.keras.preprocessing.image_dataset_from_directory tf.keras.preprocessing.text_dataset_from_directory
        tf.keras.utils.image_dataset_from_directory tf.keras.utils.text_dataset_from_directory
    """,
    "The same seed gives other numbers than in TensorFlow; each replica draws its own.": (
        "tf.random.normal tf.random.set_seed tf.random.truncated_normal tf.random.uniform"
    ),
}
MEANINGS: Final = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
"""For each name what is different."""

_STATEFUL: Final = "On several replicas a stateful RNN is refused; on one it works."
ARGUMENTS: Final = {
    ("tf.keras.layers.GRU", "stateful"): _STATEFUL,
    ("tf.keras.layers.LSTM", "stateful"): _STATEFUL,
    ("tf.keras.layers.RNN", "stateful"): _STATEFUL,
    ("tf.keras.layers.SimpleRNN", "stateful"): _STATEFUL,
    (".compile", "jit_compile"): "On several replicas the step is always compiled.",
    (".compile", "run_eagerly"): "Steps that are not compiled are slow on several replicas.",
}
"""The same for arguments of a call, where they are there and not None or False; `.name` is a method of any object."""

FOLDER: Final = _SAVED
"""The meaning of `model.save` with a path without an ending."""

OTHER_PACKAGES: Final = {
    "official": "The TensorFlow Model Garden needs TensorFlow.",
    "tensorflow_addons": "Needs TensorFlow. Keras 3 has AdamW, Lamb, GroupNormalization, F1Score and more itself.",
    "tensorflow_datasets": (
        "Needs TensorFlow to prepare data. `tfds.data_source(name)` reads what is prepared without it, and gives a "
        "sequence for `Dataset.from_generator` or a PyDataset."
    ),
    "tensorflow_estimator": "Write `from stratagem.tf import estimator`.",
    "tensorflow_hub": (
        "Needs TensorFlow, and its layers run only there. keras.applications and KerasHub have models for JAX."
    ),
    "tensorflow_io": "Needs TensorFlow.",
    "tensorflow_model_optimization": "Needs TensorFlow. Keras 3 has `model.quantize`.",
    "tensorflow_probability": "`tensorflow_probability.substrates.jax` is the same on JAX.",
    "tensorflow_text": "Needs TensorFlow. Tokenizers of KerasHub, or plain Python in `Dataset.map`, do without.",
    "tensorflow_transform": "Needs TensorFlow.",
    "tf_slim": "Needs TensorFlow 1's graphs; write the network with keras.layers.",
}
"""Packages beside TensorFlow: what to know of them here."""

KERAS_PACKAGES: Final = {"keras_cv", "keras_hub", "keras_nlp", "keras_tuner", "kerastuner"}
"""Packages that import Keras."""

KERAS_FIRST: Final = (
    "Imports Keras, which takes TensorFlow for its backend unless told otherwise: import stratagem.tf before it, or "
    "set KERAS_BACKEND=jax in the environment."
)
COMPUTED: Final = "Which name is used is decided when the program runs."
