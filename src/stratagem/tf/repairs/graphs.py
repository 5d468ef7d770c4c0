"""Replacements for names of TensorFlow 1: graphs, sessions, variables by name."""

from __future__ import annotations

from typing import Final

_NO_GRAPH: Final = (
    "Call the function: there is no graph to build and run. Values are there at once (`.numpy()`), `tf.function` "
    "compiles. For a program of TensorFlow 1 with a model_fn see docs/estimator.md."
)
_READ_DATASET: Final = "Read with tf.data: Dataset.from_tensor_slices, TFRecordDataset, TextLineDataset (docs/data.md)."
_QUANTIZE: Final = "Use Keras: model.quantize('int8'), keras.quantizers."
_PROTO: Final = "TensorFlow's protocol messages are not here; tf.train.Example and its parts are."
_CONTRIB: Final = (
    "tf.contrib ended with TensorFlow 1: its layers are tf.keras.layers, its estimators tf.estimator, its "
    "distribute tf.distribute, its training hooks tf.compat.v1.train."
)
_SESSION_HOOKS: Final = "Use tf.estimator, which runs hooks, saves checkpoints and stops (docs/estimator.md)."
_VARIABLES: Final = (
    "Make variables by tf.Variable or keras layers; a model_fn of an Estimator finds them again by name "
    "(docs/estimator.md)."
)

TABLE: Final = {
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
    """tf.train.Coordinator tf.train.LooperThread tf.train.QueueRunner tf.train.add_queue_runner tf.train.queue_runner
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
    "tf.layers": "Write tf.compat.v1.layers in a model_fn; elsewhere tf.keras.layers, with capitals: Dense.",
    "tf.to_float tf.to_double tf.to_int32 tf.to_int64 tf.to_bfloat16 tf.to_complex64 tf.to_complex128": (
        "Write tf.cast(x, tf.float32), or the dtype that is meant."
    ),
    "tf.random_crop tf.multinomial tf.random_gamma tf.random_poisson": "Write keras.random or tf.random by that name.",
    """tf.assign tf.assign_add tf.assign_sub tf.count_up_to tf.scatter_add tf.scatter_div tf.scatter_max tf.scatter_min
    tf.scatter_mul tf.scatter_nd_add tf.scatter_nd_sub tf.scatter_nd_update tf.scatter_sub tf.scatter_update
    tf.batch_scatter_update""": (
        "Write variable.assign(...), assign_add or assign_sub; parts of a variable: "
        "variable.assign(tf.tensor_scatter_nd_update(variable, indices, updates))."
    ),
    "tf.flags tf.app tf.logging tf.gfile tf.python_io tf.resource_loader tf.ConfigProto tf.GPUOptions": (
        "Write tf.compat.v1 before it, as in TensorFlow 2; absl.flags and absl.app are the same; files are tf.io.gfile."
    ),
    """tf.AttrValue tf.Event tf.GraphDef tf.HistogramProto tf.LogMessage tf.MetaGraphDef tf.NameAttrList tf.NodeDef
    tf.SessionLog tf.Summary tf.SummaryMetadata tf.TensorInfo tf.make_ndarray tf.make_tensor_proto tf.train.ServerDef
    tf.train.ClusterDef tf.train.JobDef tf.train.SequenceExample tf.train.FeatureList tf.train.FeatureLists
    tf.io.decode_proto tf.io.encode_proto tf.io.decode_json_example tf.decode_json_example tf.io.parse_sequence_example
    tf.io.parse_single_sequence_example tf.io.write_graph""": _PROTO,
}
"""Names, or namespaces with all that is in them, and their repair."""
