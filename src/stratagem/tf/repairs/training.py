"""Replacements for names around training: `tf.distribute`, `tf.data`, `tf.io`, `tf.train`."""

from __future__ import annotations

from typing import Final

from stratagem.tf.repairs.areas import IN_DATASET

_CLUSTER_FILE: Final = "Describe the cluster in TF_CONFIG, or to tf.distribute.cluster_resolver.SimpleClusterResolver."
_ENGINE: Final = "It tunes TensorFlow's own runtime; leave the line out."

TABLE: Final = {
    "tf.distribute.experimental.rpc": (
        "Use tf.distribute.coordinator.ClusterCoordinator to run functions on workers, or a library for calls between "
        "programs, such as grpcio."
    ),
    "tf.distribute.experimental.PreemptionWatcher": (
        "Write tf.distribute.experimental.PreemptionCheckpointHandler with TerminationConfig(termination_watcher_fn)."
    ),
    "tf.distribute.cluster_resolver.GCEClusterResolver": (
        "Give the addresses: tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec("
        "{'worker': [...]}), task_type='worker', task_id=0), or set TF_CONFIG."
    ),
    "tf.distribute.get_loss_reduction": "Losses in a custom loop are scaled with tf.nn.compute_average_loss.",
    "tf.config.experimental.ClusterDeviceFilters": _CLUSTER_FILE,
    "tf.data.DatasetSpec tf.data.IteratorSpec": "Write dataset.element_spec.",
    "tf.data.experimental.Counter": "Write tf.data.Dataset.range(start, stop, step), with repeat() for no end.",
    "tf.data.experimental.CsvDataset tf.data.experimental.make_csv_dataset": (
        "Write tf.data.TextLineDataset(file).skip(1).map(lambda line: tf.io.decode_csv(line, defaults)), or "
        "tf.data.Dataset.from_tensor_slices(dict(pandas.read_csv(file)))."
    ),
    "tf.data.experimental.SqlDataset": "Write tf.data.Dataset.from_generator over the rows of sqlite3's cursor.",
    "tf.data.experimental.RandomDataset": "Write Dataset.range(n).map(...) with numpy.random.default_rng(seed).",
    "tf.data.experimental.from_list": "Write tf.data.Dataset.from_tensor_slices(list).",
    "tf.data.experimental.make_batched_features_dataset tf.data.experimental.parse_example_dataset": (
        "Write tf.data.TFRecordDataset(files).batch(n).map(lambda records: tf.io.parse_example(records, features))."
    ),
    """tf.data.experimental.bucket_by_sequence_length tf.data.experimental.dense_to_ragged_batch
    tf.data.experimental.dense_to_sparse_batch tf.data.experimental.pad_to_cardinality""": (
        "Write Dataset.padded_batch: XLA compiles a step for each shape, so few shapes are fast."
    ),
    """tf.data.experimental.group_by_window tf.data.experimental.group_by_reducer tf.data.experimental.Reducer
    tf.data.experimental.scan tf.data.experimental.take_while tf.data.experimental.unique
    tf.data.experimental.ignore_errors tf.data.experimental.rejection_resample""": (
        "Write a generator function and tf.data.Dataset.from_generator; Dataset.filter leaves elements out."
    ),
    """tf.data.experimental.save tf.data.experimental.load tf.data.experimental.snapshot
    tf.data.experimental.distributed_save""": (
        "Write TFRecord or ArrayRecord files (stratagem.data.write_tfrecord, docs/data.md), or Dataset.cache()."
    ),
    """tf.data.experimental.copy_to_device tf.data.experimental.prefetch_to_device""": (
        "Leave it out: fit and strategy.experimental_distribute_dataset put batches on devices ahead of their use."
    ),
    "tf.data.experimental.service tf.data.experimental.ServiceOptions": (
        "Leave it out: each worker reads its own rows, in processes of its own with "
        "tf.data.Options().reader_processes (docs/data.md)."
    ),
    "tf.data.experimental.make_saveable_from_iterator": (
        "Write tf.train.Checkpoint(iterator=iterator): iterators tell their state."
    ),
    """tf.data.experimental.index_table_from_dataset tf.data.experimental.table_from_dataset
    tf.data.experimental.DatasetInitializer""": IN_DATASET,
    """tf.data.experimental.AutotuneAlgorithm tf.data.experimental.ExternalStatePolicy
    tf.data.experimental.enable_debug_mode tf.data.experimental.get_model_proto""": _ENGINE,
    "tf.data.experimental.at": "Write next(iter(dataset.skip(index))).",
    "tf.io.decode_and_crop_jpeg": "Write tf.io.decode_jpeg(contents)[top:top + height, left:left + width].",
    "tf.io.decode_jxl tf.io.decode_webp": "Write tf.io.decode_image, which reads what Pillow reads.",
    "tf.io.decode_base64 tf.io.encode_base64 tf.decode_base64 tf.encode_base64": (
        "Write base64.urlsafe_b64decode or urlsafe_b64encode in a function given to Dataset.map."
    ),
    "tf.io.decode_compressed tf.decode_compressed": "Write zlib.decompress or gzip.decompress in a Dataset.map.",
    "tf.train.ExponentialMovingAverage": (
        "Write tf.keras.optimizers.Adam(..., use_ema=True, ema_momentum=0.99): every Keras optimizer has it."
    ),
    "tf.train.CheckpointView tf.train.TrackableView": "Write tf.train.load_checkpoint(path), tf.train.list_variables.",
    "tf.train.experimental": (
        "A checkpoint is one file, written by the chief; Python values in it: tf.train.Checkpoint(step=tf.Variable(0))."
    ),
    "tf.profiler.experimental.client tf.profiler.experimental.server": (
        "Write jax.profiler.start_server(port), and capture from TensorBoard's profile page or xprof."
    ),
    "tf.keras.backend.function tf.keras.backend.gradients tf.keras.backend.placeholder tf.keras.backend.get_session": (
        "There is no graph: call the model or the function; gradients come from tf.GradientTape."
    ),
    "tf.keras.experimental.LinearModel tf.keras.experimental.WideDeepModel": "Write it with tf.keras.layers.",
    "tf.keras.models.model_from_yaml": "Write model.to_json() and tf.keras.models.model_from_json.",
    "tf.keras.utils.GeneratorEnqueuer tf.keras.utils.OrderedEnqueuer tf.keras.utils.SequenceEnqueuer": (
        "Give fit a keras.utils.PyDataset(workers=4), or a tf.data.Dataset."
    ),
    "tf.keras.utils.multi_gpu_model": "Make and compile the model in tf.distribute.MirroredStrategy().scope().",
    "tf.keras.wrappers.scikit_learn": "Write tf.keras.wrappers.SKLearnClassifier or SKLearnRegressor.",
    "tf.test": "Write pytest or unittest with numpy.testing; tf.test.TestCase compares arrays.",
    "tf.debugging.experimental": (
        "Write jax.debug.print, jax.debug.breakpoint, or jax.config.update('jax_debug_nans', True)."
    ),
}
"""Names, or namespaces with all that is in them, and their repair."""
