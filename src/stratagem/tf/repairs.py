"""Replacements for names and areas of TensorFlow that `stratagem.tf` does not have.

Names of `tf.compat.v1` stand here as `tf`'s.
"""

from __future__ import annotations

from typing import Final

_NO_GRAPH: Final = (
    "Call the function: there is no graph to build and run. Values exist at once (`.numpy()`), and `tf.function` "
    "compiles. For a program of TensorFlow 1 with a model_fn see `stratagem help estimator`."
)
_READ_DATASET: Final = (
    "Read with tf.data: Dataset.from_tensor_slices, TFRecordDataset, TextLineDataset (see `stratagem help data`)."
)
_QUANTIZE: Final = "Use Keras: model.quantize('int8'), keras.quantizers."
_PROTO: Final = "TensorFlow's protocol messages are not here; tf.train.Example and its parts are."
_CONTRIB: Final = (
    "tf.contrib ended with TensorFlow 1: its layers are tf.keras.layers, its estimators tf.estimator, its "
    "distribute tf.distribute, its training hooks tf.compat.v1.train."
)
_SESSION_HOOKS: Final = (
    "Use tf.estimator, which runs hooks, saves checkpoints and stops (see `stratagem help estimator`)."
)
_VARIABLES: Final = (
    "Make variables with tf.Variable or keras layers; a model_fn of an Estimator finds them again by name "
    "(see `stratagem help estimator`)."
)
_DENSE: Final = (
    "Use what `stratagem help tensorflow#ragged-and-sparse-tensors` names, or a dense tensor: "
    "Dataset.padded_batch pads rows to one length, tf.one_hot and tf.gather work by index, and "
    "tf.io.FixedLenFeature reads a feature of a known shape. XLA compiles for known shapes."
)
_IN_DATASET: Final = (
    "Look values up where the data is read: tf.keras.layers.StringLookup or IntegerLookup in a function given to "
    "Dataset.map. See `stratagem help keras#text-and-lookups`."
)
_DTENSOR: Final = (
    "Use a strategy for data parallelism; for tensors divided among devices use JAX: jax.sharding.NamedSharding, "
    "keras.distribution.ModelParallel."
)
_CONVERT: Final = "Save with model.save('model.keras') and convert on a machine that has TensorFlow."
_EXTENSION: Final = (
    "Use a dict, a tuple or a dataclass registered with jax.tree_util.register_dataclass. They can be nested."
)
_LIBRARY: Final = "JAX loads compiled code through jax.ffi.ffi_call; there are no TensorFlow kernels to load."
_RAW: Final = "Use the function of the same purpose: tf.nn, tf.math, keras.ops or jax.lax."
_ENGINE: Final = "It tunes TensorFlow's own runtime; leave the line out."
_ENQUEUER: Final = "Write keras.utils.PyDataset(workers=4, use_multiprocessing=True), which fit takes."
_CLUSTER_FILE: Final = (
    "Describe the cluster in TF_CONFIG, or with tf.distribute.cluster_resolver.SimpleClusterResolver."
)

_TABLE: Final = {
    # TensorFlow 1: graphs, sessions, variables by name.
    """tf.Session tf.InteractiveSession tf.placeholder tf.placeholder_with_default tf.sparse_placeholder
    tf.global_variables_initializer tf.local_variables_initializer tf.variables_initializer tf.tables_initializer
    tf.initialize_all_variables tf.initialize_all_tables tf.initialize_local_variables tf.initialize_variables
    tf.Graph tf.Operation tf.GraphKeys tf.get_default_graph tf.get_default_session tf.add_to_collection
    tf.add_to_collections tf.get_collection tf.get_collection_ref tf.import_graph_def tf.graph_util tf.RunMetadata
    tf.control_flow_v2_enabled tf.resource_variables_enabled tf.executing_eagerly_outside_functions tf.wrap_function
    tf.get_session_handle tf.get_session_tensor tf.delete_session_tensor tf.colocate_with tf.container tf.op_scope
    tf.Print tf.py_func tf.user_ops tf.add_check_numerics_ops tf.load_file_system_library
    tf.report_uninitialized_variables tf.is_variable_initialized tf.assert_variables_initialized
    tf.saved_model.builder tf.saved_model.simple_save tf.saved_model.loader tf.saved_model.main_op
    tf.AggregationMethod tf.RegisterGradient tf.no_gradient tf.NoGradient tf.NotDifferentiable tf.required_space
    tf.profiler.profile tf.profiler.ProfileOptionBuilder tf.profiler.Profiler""": _NO_GRAPH,
    """tf.get_variable tf.get_local_variable tf.variable_scope tf.get_variable_scope tf.VariableScope tf.AUTO_REUSE
    tf.variable_op_scope tf.make_template tf.trainable_variables tf.global_variables tf.local_variables
    tf.model_variables tf.moving_average_variables tf.all_variables tf.create_partitioned_variables
    tf.fixed_size_partitioner tf.min_max_variable_partitioner tf.variable_axis_size_partitioner
    tf.no_regularizer""": _VARIABLES,
    """tf.train.MonitoredSession tf.train.MonitoredTrainingSession tf.train.SingularMonitoredSession
    tf.train.ChiefSessionCreator tf.train.WorkerSessionCreator tf.train.SessionCreator tf.train.SessionManager
    tf.train.Supervisor tf.train.FeedFnHook tf.train.GlobalStepWaiterHook tf.train.basic_train_loop
    tf.train.assert_global_step tf.train.global_step
    tf.train.VocabInfo""": _SESSION_HOOKS,
    "tf.train.Saver tf.train.SaverDef tf.train.export_meta_graph tf.train.import_meta_graph tf.train.write_graph "
    "tf.train.checkpoint_exists tf.train.get_checkpoint_mtimes tf.train.update_checkpoint_state "
    "tf.train.generate_checkpoint_state_proto tf.train.remove_checkpoint": (
        "Write tf.train.Checkpoint(model=model, optimizer=optimizer) and tf.train.CheckpointManager; an Estimator "
        "saves by itself."
    ),
    "tf.train.init_from_checkpoint tf.train.warm_start": "Write tf.estimator.Estimator(..., warm_start_from=folder).",
    """tf.train.LooperThread tf.train.QueueRunner tf.train.add_queue_runner tf.train.queue_runner
    tf.train.start_queue_runners tf.train.batch tf.train.batch_join tf.train.maybe_batch tf.train.maybe_batch_join
    tf.train.maybe_shuffle_batch tf.train.maybe_shuffle_batch_join tf.train.shuffle_batch tf.train.shuffle_batch_join
    tf.train.input_producer tf.train.range_input_producer tf.train.slice_input_producer
    tf.train.string_input_producer tf.train.limit_epochs tf.train.match_filenames_once tf.queue tf.FIFOQueue
    tf.PaddingFIFOQueue tf.PriorityQueue tf.QueueBase tf.RandomShuffleQueue tf.ReaderBase tf.IdentityReader
    tf.FixedLengthRecordReader tf.LMDBReader tf.TFRecordReader tf.TextLineReader tf.WholeFileReader
    tf.ConditionalAccumulator tf.ConditionalAccumulatorBase tf.SparseConditionalAccumulator
    tf.data.make_initializable_iterator tf.io.match_filenames_once""": _READ_DATASET,
    "tf.train.SyncReplicasOptimizer tf.train.replica_device_setter": (
        "Write a strategy: MultiWorkerMirroredStrategy sums gradients over all workers, ParameterServerStrategy "
        "places variables (also tf.estimator.RunConfig(train_distribute=strategy))."
    ),
    """tf.train.AdagradDAOptimizer tf.train.ProximalAdagradOptimizer tf.train.ProximalGradientDescentOptimizer
    tf.train.sdca_optimizer tf.train.sdca_fprint tf.train.sdca_shrink_l1 tf.train.Optimizer""": (
        "Write tf.keras.optimizers (Ftrl has l1 and l2), or a subclass of keras.optimizers.Optimizer."
    ),
    "tf.train.do_quantize_training_on_graphdef": _QUANTIZE,
    "tf.contrib": _CONTRIB,
    "tf.summary.merge tf.summary.merge_all tf.summary.initialize tf.summary.all_v2_summary_ops": (
        "Leave it out: tf.summary.scalar in a model_fn is written by the Estimator's SummarySaverHook."
    ),
    """tf.summary.FileWriter tf.summary.FileWriterCache tf.summary.Summary tf.summary.Event tf.summary.SessionLog
    tf.summary.SummaryDescription tf.summary.TaggedRunMetadata tf.summary.get_summary_description
    tf.summary.tensor_summary tf.summary.graph tf.summary.write tf.train.summary_iterator
    tf.summary.experimental.write_raw_pb""": (
        "Write tf.summary.create_file_writer(folder), and tf.summary.scalar, histogram, image, audio or text inside "
        "`with writer.as_default():`."
    ),
    "tf.train.noisy_linear_cosine_decay": "Write tf.compat.v1.train.linear_cosine_decay.",
    "tf.losses.mean_pairwise_squared_error": "Write it with tf.math, and tf.compat.v1.losses.add_loss.",
    "tf.layers": "Write tf.compat.v1.layers in a model_fn, and tf.keras.layers elsewhere, with capitals: Dense.",
    "tf.to_float tf.to_double tf.to_int32 tf.to_int64 tf.to_bfloat16 tf.to_complex64 tf.to_complex128": (
        "Write tf.cast(x, tf.float32), or another dtype."
    ),
    "tf.random_crop tf.multinomial tf.random_gamma tf.random_poisson": (
        "Write the function of that name in keras.random or tf.random."
    ),
    """tf.assign tf.assign_add tf.assign_sub tf.count_up_to tf.scatter_add tf.scatter_div tf.scatter_max tf.scatter_min
    tf.scatter_mul tf.scatter_nd_add tf.scatter_nd_sub tf.scatter_nd_update tf.scatter_sub tf.scatter_update
    tf.batch_scatter_update""": (
        "Write variable.assign(...), assign_add or assign_sub; parts of a variable: "
        "variable.assign(tf.tensor_scatter_nd_update(variable, indices, updates))."
    ),
    "tf.flags tf.app tf.logging tf.gfile tf.python_io tf.resource_loader tf.ConfigProto tf.GPUOptions": (
        "Write tf.compat.v1 before it, as in TensorFlow 2. absl.flags and absl.app work too; for files use tf.io.gfile."
    ),
    """tf.AttrValue tf.Event tf.GraphDef tf.HistogramProto tf.LogMessage tf.MetaGraphDef tf.NameAttrList tf.NodeDef
    tf.SessionLog tf.Summary tf.SummaryMetadata tf.TensorInfo tf.make_tensor_proto tf.train.ServerDef
    tf.train.ClusterDef tf.train.JobDef tf.train.SequenceExample tf.train.FeatureList tf.train.FeatureLists
    tf.io.decode_proto tf.io.encode_proto tf.io.decode_json_example tf.decode_json_example tf.io.parse_sequence_example
    tf.io.parse_single_sequence_example tf.io.write_graph""": _PROTO,
    # Whole areas of TensorFlow.
    "tf.lite tf.mlir tf.xla tf.tools tf.experimental.tensorrt": _CONVERT,
    """tf.quantization tf.fake_quant_with_min_max_args tf.quantize tf.quantize_v2 tf.dequantize tf.quantized_concat
    tf.qint8 tf.qint16 tf.qint32 tf.quint8 tf.quint16 tf.QUANTIZED_DTYPES tf.dtypes.QUANTIZED_DTYPES
    tf.fake_quant_with_min_max_vars tf.fake_quant_with_min_max_args_gradient tf.fake_quant_with_min_max_vars_gradient
    tf.fake_quant_with_min_max_vars_per_channel tf.fake_quant_with_min_max_vars_per_channel_gradient""": _QUANTIZE,
    """tf.ragged tf.SparseTensorValue tf.sparse tf.IndexedSlicesSpec tf.io.SparseFeature tf.SparseFeature
    tf.io.serialize_sparse tf.io.serialize_many_sparse tf.io.deserialize_many_sparse tf.ragged_fill_empty_rows
    tf.ragged_fill_empty_rows_grad tf.edit_distance tf.experimental.DynamicRaggedShape tf.experimental.RowPartition
    tf.experimental.StructuredTensor tf.sets tf.sparse_matmul tf.sparse_merge tf.sparse_reduce_max_sparse
    tf.sparse_reduce_sum_sparse
    tf.serialize_sparse tf.serialize_many_sparse tf.deserialize_many_sparse""": _DENSE,
    "tf.dtensor tf.experimental.dtensor": _DTENSOR,
    "tf.raw_ops": _RAW,
    "tf.load_library tf.load_op_library tf.sysconfig tf.experimental.register_filesystem_plugin": _LIBRARY,
    """tf.experimental.ExtensionType tf.experimental.BatchableExtensionType tf.experimental.ExtensionTypeBatchEncoder
    tf.experimental.ExtensionTypeSpec tf.experimental.extension_type tf.experimental.dispatch_for_api
    tf.experimental.dispatch_for_binary_elementwise_apis tf.experimental.dispatch_for_binary_elementwise_assert_apis
    tf.experimental.dispatch_for_unary_elementwise_apis tf.experimental.unregister_dispatch_for
    tf.type_spec_from_value tf.register_tensor_conversion_function tf.NoneTensorSpec tf.OptionalSpec tf.types
    tf.TensorArraySpec""": _EXTENSION,
    """tf.experimental.Optional tf.data.experimental.Optional tf.data.experimental.from_variant
    tf.data.experimental.to_variant""": "Write iterator.get_next_as_optional(), which has has_value() and get_value().",
    "tf.experimental.async_scope tf.experimental.async_clear_error": "Leave it out: JAX computes in the background.",
    "tf.experimental.numpy": "Write numpy or jax.numpy, which have the same functions.",
    "tf.experimental.dlpack": "Write jax.dlpack.from_dlpack(x); JAX's arrays have __dlpack__.",
    "tf.experimental.enable_strict_mode tf.experimental.function_executor_type": _ENGINE,
    "tf.CriticalSection": "Leave it out: a compiled step runs on its own, and variables are assigned in order.",
    "tf.hessians": "Write tf.GradientTape, or jax.grad, jax.hessian.",
    "tf.autodiff": "Write jax.jvp for tangents forward, tf.GradientTape for gradients.",
    "tf.autograph": (
        "tf.function rewrites loops and conditions on tensors by itself; there is no converted source to look at (see "
        "`stratagem help tensorflow`)."
    ),
    "tf.tpu": (
        "Write tf.distribute.TPUStrategy(); each core is a replica, and JAX finds the TPUs by itself. Embeddings: "
        "keras.layers.Embedding."
    ),
    "tf.audio": "Read sounds with Python's wave module or scipy.io.wavfile in a function given to Dataset.map.",
    "tf.feature_column": (
        "Write preprocessing layers of tf.keras.layers (Normalization, CategoryEncoding, HashedCrossing ...), or see "
        "`stratagem help estimator` for feature columns of Estimators."
    ),
    # Names of Keras 2 that Keras 3 dropped.
    "tf.keras.applications": (
        "Write another model of tf.keras.applications (ResNet, EfficientNetV2, ConvNeXt), or keras_hub."
    ),
    "tf.keras.backend": (
        "Write keras.ops or tf, whose functions have the names of NumPy and TensorFlow: conv2d is tf.nn.conv2d, "
        "resize_images tf.image.resize, local_conv1d keras.ops.conv, random_bernoulli keras.random.binomial."
    ),
    "tf.keras.callbacks.BaseLogger": "Leave it out: fit shows mean values by itself.",
    "tf.keras.callbacks.SidecarEvaluatorModelExport": "Write tf.keras.callbacks.ModelCheckpoint.",
    "tf.keras.dtensor": "Write a strategy, or keras.distribution.",
    "tf.keras.experimental.LinearModel tf.keras.experimental.WideDeepModel": (
        "Write a model with keras.Input and Dense layers, or tf.estimator.DNNLinearCombinedClassifier."
    ),
    "tf.keras.experimental.SequenceFeatures tf.keras.layers.DenseFeatures": (
        "Write keras.utils.FeatureSpace, or preprocessing layers (`stratagem help estimator` has feature columns of "
        "Estimators)."
    ),
    "tf.keras.layers.AbstractRNNCell": "Write a keras.layers.Layer with state_size and call(inputs, states).",
    "tf.keras.layers.LocallyConnected1D tf.keras.layers.LocallyConnected2D": (
        "Write keras.layers.Layer with keras.ops.image.extract_patches and keras.ops.einsum."
    ),
    "tf.keras.layers.RandomHeight tf.keras.layers.RandomWidth": "Write keras.layers.RandomZoom, or RandomCrop.",
    "tf.keras.layers.ThresholdedReLU": "Write keras.layers.ReLU(threshold=theta).",
    "tf.keras.layers.experimental.DynamicEmbedding tf.keras.layers.experimental.DynamicLookup": (
        "Write keras.layers.Embedding of fixed size over hashed ids: tf.keras.layers.Hashing."
    ),
    "tf.keras.layers.experimental.RandomFourierFeatures": "Write Dense(trainable=False) and keras.ops.cos.",
    "tf.keras.layers.experimental.preprocessing": "Write the layer of that name in keras.layers.",
    "tf.keras.metrics.MeanRelativeError": "Write keras.metrics.Mean of keras.ops.abs(y - p) / normalizer.",
    "tf.keras.metrics.MeanTensor": "Write a subclass of keras.Metric with a total and a count.",
    "tf.keras.metrics.experimental": "Write a subclass of keras.Metric.",
    "tf.keras.models.experimental": "Write the steps of sharpness-aware minimization in a train_step.",
    "tf.keras.models.model_from_yaml": "Write model.to_json() and tf.keras.models.model_from_json.",
    "tf.keras.models.model_from_config": "Write keras.saving.deserialize_keras_object, or Model.from_config.",
    "tf.keras.constraints.RadialConstraint tf.keras.constraints.radial_constraint": (
        "Write a subclass of keras.constraints.Constraint."
    ),
    "tf.keras.utils.GeneratorEnqueuer tf.keras.utils.OrderedEnqueuer tf.keras.utils.SequenceEnqueuer": _ENQUEUER,
    "tf.keras.utils.StepsPerExecutionTuner": "Write compile(steps_per_execution=32).",
    "tf.keras.utils.to_ordinal": "Write (labels[:, None] > numpy.arange(classes - 1)).astype('float32').",
    "tf.keras.utils.warmstart_embedding_matrix": "Write embedding.set_weights with the rows of the old matrix.",
    "tf.keras.wrappers.scikit_learn": "Write keras.wrappers.SKLearnClassifier or SKLearnRegressor, or scikeras.",
    "tf.keras.preprocessing.text": (
        "Write the tokens in Python: ids = {word: i for i, word in enumerate(words)}; keras.utils.pad_sequences."
    ),
    # Around training: `tf.distribute`, `tf.data`, `tf.io`, `tf.train`.
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
    "tf.data.IteratorSpec": "Write dataset.element_spec.",
    "tf.data.experimental.SqlDataset": "Write tf.data.Dataset.from_generator over the rows of sqlite3's cursor.",
    "tf.data.experimental.from_list": "Write tf.data.Dataset.from_tensor_slices(list).",
    "tf.data.experimental.make_batched_features_dataset tf.data.experimental.parse_example_dataset": (
        "Write tf.data.TFRecordDataset(files).batch(n).map(lambda records: tf.io.parse_example(records, features))."
    ),
    "tf.data.experimental.dense_to_sparse_batch tf.data.experimental.pad_to_cardinality": (
        "Write Dataset.padded_batch: XLA compiles a step for each shape, so few shapes are fast."
    ),
    "tf.data.experimental.group_by_reducer tf.data.experimental.Reducer": (
        "Write Dataset.group_by_window, or a generator function and tf.data.Dataset.from_generator."
    ),
    "tf.data.experimental.distributed_save": "Write dataset.save(path), or dataset.snapshot(path).",
    "tf.data.experimental.service tf.data.experimental.ServiceOptions": (
        "Leave it out: each worker reads its own rows, in processes of its own with "
        "tf.data.Options().reader_processes (see `stratagem help data`)."
    ),
    "tf.data.experimental.make_saveable_from_iterator": (
        "Write tf.train.Checkpoint(iterator=iterator): iterators save their state."
    ),
    """tf.data.experimental.index_table_from_dataset tf.data.experimental.table_from_dataset
    tf.data.experimental.DatasetInitializer""": _IN_DATASET,
    """tf.data.experimental.AutotuneAlgorithm tf.data.experimental.ExternalStatePolicy
    tf.data.experimental.enable_debug_mode tf.data.experimental.get_model_proto""": _ENGINE,
    "tf.data.experimental.at": "Write next(iter(dataset.skip(index))).",
    "tf.io.decode_and_crop_jpeg": "Write tf.io.decode_jpeg(contents)[top:top + height, left:left + width].",
    "tf.io.decode_jxl tf.io.decode_webp": "Write tf.io.decode_image, which reads what Pillow reads.",
    "tf.io.decode_base64 tf.io.encode_base64 tf.decode_base64 tf.encode_base64": (
        "Write base64.urlsafe_b64decode or urlsafe_b64encode in a function given to Dataset.map."
    ),
    "tf.io.decode_compressed tf.decode_compressed": "Write zlib.decompress or gzip.decompress in a Dataset.map.",
    "tf.train.CheckpointView tf.train.TrackableView": "Write tf.train.load_checkpoint(path), tf.train.list_variables.",
    "tf.train.experimental": (
        "The chief writes a checkpoint as one file. For a Python value write tf.train.Checkpoint(step=tf.Variable(0))."
    ),
    "tf.profiler.experimental.client tf.profiler.experimental.server": (
        "Write jax.profiler.start_server(port), and capture from TensorBoard's profile page or xprof."
    ),
    "tf.keras.backend.gradients tf.keras.backend.placeholder tf.keras.backend.get_session": (
        "There is no graph: call the model or the function; gradients come from tf.GradientTape."
    ),
    "tf.keras.utils.multi_gpu_model": "Make and compile the model in tf.distribute.MirroredStrategy().scope().",
    "tf.test": "Write pytest or unittest with numpy.testing; tf.test.TestCase compares arrays.",
    "tf.debugging.experimental": (
        "Write jax.debug.print, jax.debug.breakpoint, or jax.config.update('jax_debug_nans', True)."
    ),
    # Operations.
    "tf.check_pinned": "Write tf.identity, or nothing.",
    "tf.conv tf.conv2d_backprop_filter_v2 tf.conv2d_backprop_input_v2": "Write tf.nn.conv2d, keras.ops.conv.",
    "tf.fftnd tf.ifftnd tf.irfftnd tf.rfftnd": "Write jax.numpy.fft.fftn, ifftn, irfftn, rfftn.",
    "tf.approx_top_k": "Write jax.lax.approx_max_k.",
    "tf.fingerprint": "Write hashlib in a function given to Dataset.map.",
    "tf.resource tf.variant": "These dtypes hold TensorFlow's own objects; keep Python objects in Python.",
    "tf.is_symbolic_tensor": "Write isinstance(x, jax.core.Tracer).",
    "tf.random_index_shuffle": "Write jax.random.permutation(key, n)[index].",
    "tf.extract_volume_patches": "Write keras.ops.image.extract_patches_3d.",
    "tf.required_space_to_batch_paddings tf.nn.with_space_to_batch": (
        "Write tf.space_to_batch with the paddings; dilated convolutions are tf.nn.conv2d(..., dilations=2)."
    ),
    "tf.batch_to_space_nd": "Write tf.batch_to_space.",
    "tf.div": "Write tf.divide, or tf.math.floordiv for whole numbers.",
    "tf.div_no_nan": "Write tf.math.divide_no_nan.",
    "tf.timestamp": "Write time.time().",
    "tf.get_current_name_scope": "Leave it out: names of operations are for profiles only.",
    "tf.get_seed": "Write tf.random.set_seed(seed).",
    "tf.matrix_square_root tf.linalg.sqrtm": "Write jax.scipy.linalg.sqrtm.",
    "tf.linalg.logm": "Write v @ diag(log(w)) @ v.T with jax.numpy.linalg.eigh, for a symmetric matrix.",
    "tf.linalg.eigh_tridiagonal tf.linalg.experimental": (
        "Write jax.scipy.linalg.eigh_tridiagonal, jax.scipy.sparse.linalg.cg."
    ),
    """tf.linalg.LinearOperator tf.linalg.LinearOperatorAdjoint tf.linalg.LinearOperatorBlockDiag
    tf.linalg.LinearOperatorBlockLowerTriangular tf.linalg.LinearOperatorCirculant
    tf.linalg.LinearOperatorCirculant2D tf.linalg.LinearOperatorCirculant3D tf.linalg.LinearOperatorComposition
    tf.linalg.LinearOperatorDiag tf.linalg.LinearOperatorFullMatrix tf.linalg.LinearOperatorHouseholder
    tf.linalg.LinearOperatorIdentity tf.linalg.LinearOperatorInversion tf.linalg.LinearOperatorKronecker
    tf.linalg.LinearOperatorLowRankUpdate tf.linalg.LinearOperatorLowerTriangular
    tf.linalg.LinearOperatorPermutation tf.linalg.LinearOperatorScaledIdentity tf.linalg.LinearOperatorToeplitz
    tf.linalg.LinearOperatorTridiag tf.linalg.LinearOperatorZeros""": (
        "Write the matrix, or a function of vectors: JAX's solvers (jax.scipy.sparse.linalg.cg) take functions."
    ),
    "tf.math.special": "Write jax.scipy.special: dawsn, fresnel and others; bessel_jn for the first kind.",
    "tf.math.sobol_sample": "Write scipy.stats.qmc.Sobol.",
    "tf.signal.fftnd tf.signal.ifftnd tf.signal.rfftnd tf.signal.irfftnd": (
        "Write jax.numpy.fft.fftn, ifftn, rfftn, irfftn."
    ),
    "tf.spectral tf.fft tf.fft2d tf.fft3d tf.ifft tf.ifft2d tf.ifft3d": "Write tf.signal: fft, rfft, dct and others.",
    "tf.image.non_max_suppression tf.image.non_max_suppression_overlaps tf.image.non_max_suppression_padded "
    "tf.image.non_max_suppression_with_scores tf.image.combined_non_max_suppression "
    "tf.image.generate_bounding_box_proposals": (
        "Write keras_hub.layers.NonMaxSuppression, or NumPy after predict: the number of boxes depends on values."
    ),
    "tf.image.crop_and_resize tf.image.extract_glimpse": (
        "Write keras.ops.image.crop_images and resize, or keras.ops.image.affine_transform."
    ),
    "tf.image.decode_and_crop_jpeg": "Write tf.io.decode_jpeg(contents)[top:top + height, left:left + width].",
    """tf.image.adjust_jpeg_quality tf.image.random_jpeg_quality tf.image.stateless_random_jpeg_quality""": (
        "Write tf.io.decode_jpeg(tf.io.encode_jpeg(image, quality=quality)) in a function given to Dataset.map."
    ),
    "tf.image.draw_bounding_boxes": "Write keras.visualization.draw_bounding_boxes.",
    "tf.image.ssim_multiscale": "Write it with tf.image.ssim of images that tf.nn.avg_pool2d made smaller.",
    "tf.image.extract_image_patches tf.extract_image_patches": "Write tf.image.extract_patches.",
    """tf.nn.all_candidate_sampler tf.nn.compute_accidental_hits tf.nn.fixed_unigram_candidate_sampler
    tf.nn.learned_unigram_candidate_sampler tf.nn.log_uniform_candidate_sampler tf.nn.uniform_candidate_sampler
    tf.nn.nce_loss tf.nn.sampled_softmax_loss tf.random.all_candidate_sampler
    tf.random.fixed_unigram_candidate_sampler tf.random.learned_unigram_candidate_sampler
    tf.random.log_uniform_candidate_sampler tf.random.uniform_candidate_sampler""": (
        "Draw negative examples where the data is read (numpy.random.Generator.choice), and give the model their ids."
    ),
    "tf.nn.RNNCellDeviceWrapper tf.nn.RNNCellDropoutWrapper tf.nn.RNNCellResidualWrapper": (
        "Write keras.layers.LSTMCell(dropout=...), or a subclass of keras.layers.Layer around a cell."
    ),
    "tf.nn.ctc_beam_search_decoder tf.nn.ctc_greedy_decoder": "Write keras.ops.ctc_decode.",
    "tf.nn.ctc_unique_labels tf.nn.collapse_repeated": "Write keras.ops.ctc_loss, keras.ops.ctc_decode.",
    "tf.nn.fractional_avg_pool tf.nn.fractional_max_pool tf.nn.max_pool_with_argmax": (
        "Write tf.nn.max_pool2d or avg_pool2d, or jax.lax.reduce_window."
    ),
    "tf.nn.isotonic_regression": "Write sklearn.isotonic, on the host.",
    "tf.nn.safe_embedding_lookup_sparse": "Write tf.nn.embedding_lookup over padded ids, and a mask.",
    "tf.nn.experimental": "Write tf.nn.dropout, or keras.random.dropout with a seed.",
    "tf.random.Algorithm tf.random.create_rng_state tf.random.experimental": (
        "Write tf.random.Generator.from_seed(seed), or keras.random.SeedGenerator."
    ),
    "tf.random.stateless_poisson tf.random.stateless_gamma tf.random.stateless_binomial": (
        "Write the function of that name in jax.random, with jax.random.key(seed)."
    ),
    "tf.strings tf.string_split tf.string_to_hash_bucket tf.string_to_hash_bucket_fast "
    "tf.string_to_hash_bucket_strong": (
        "Write tf.strings.to_hash_bucket_fast for buckets, tf.strings.split for words; or Python in a function given "
        "to Dataset.map, where text is bytes."
    ),
    "tf.debugging.assert_proper_iterable tf.assert_proper_iterable": "Write isinstance(x, (list, tuple)).",
    "tf.debugging.assert_same_float_dtype tf.assert_same_float_dtype tf.debugging.assert_integer tf.assert_integer": (
        "Write tf.debugging.assert_type(x, dtype)."
    ),
    "tf.verify_tensor_all_finite": "Write tf.debugging.assert_all_finite(x, message).",
    "tf.dtypes.experimental": "Write the name that the dtype has in ml_dtypes: 'float8_e4m3fn', 'int4'.",
    "tf.dtypes": "Write the dtype's name: 'float32'.",
    """tf.errors.ABORTED tf.errors.ALREADY_EXISTS tf.errors.CANCELLED tf.errors.DATA_LOSS tf.errors.DEADLINE_EXCEEDED
    tf.errors.FAILED_PRECONDITION tf.errors.INTERNAL tf.errors.INVALID_ARGUMENT tf.errors.NOT_FOUND tf.errors.OK
    tf.errors.OUT_OF_RANGE tf.errors.PERMISSION_DENIED tf.errors.RESOURCE_EXHAUSTED tf.errors.UNAUTHENTICATED
    tf.errors.UNAVAILABLE tf.errors.UNIMPLEMENTED tf.errors.UNKNOWN tf.errors.UnauthenticatedError
    tf.errors.OperatorNotAllowedInGraphError""": (
        "Catch the class of the error: tf.errors.UnavailableError; errors here have no codes."
    ),
    "tf.saved_model": (
        "Write model.save('model.keras') and tf.keras.models.load_model; model.export(folder) writes for servers, "
        "'onnx' without TensorFlow."
    ),
    "tf.convert_to_tensor_or_indexed_slices tf.convert_to_tensor_or_sparse_tensor": "Write tf.convert_to_tensor.",
    "tf.batch_gather": "Write tf.gather(params, indices, batch_dims=1).",
    "tf.clip_by_average_norm": "Write tf.clip_by_norm.",
    "tf.manip": "Write tf.roll, tf.reverse and others by their names in tf.",
    "tf.uniform_unit_scaling_initializer": "Write tf.keras.initializers.VarianceScaling.",
    "tf.Dimension tf.CXX11_ABI_FLAG tf.CXX_VERSION tf.MONOLITHIC_BUILD": "Leave it out; sizes are Python's numbers.",
    "tf.RunOptions": "Write tf.distribute.RunOptions; a session's options have no use here.",
    "tf.nondifferentiable_batch_function": "Call the model: the server batches requests.",
    "tf.security tf.python tf.core tf.compiler": "These are TensorFlow's private modules; use the public names.",
    "tf.compat.forward_compatible tf.compat.forward_compatibility_horizon": "Leave it out: there is one version here.",
}
"""Names, or namespaces with all that is in them, and their repair."""

INSTEAD: Final = {name: repair for names, repair in _TABLE.items() for name in names.split()}
"""For each name the repair."""
