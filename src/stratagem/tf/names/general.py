"""Names of `tf` and its modules, but for those of Keras and TensorFlow 1: where each lives."""

from __future__ import annotations

from typing import Final

GENERAL: Final[dict[str, dict[str, str]]] = {
    # `import stratagem.tf as tf` in place of `import tensorflow as tf`: the names that distributed Keras programs use.
    "": {
        "stratagem": "GradientTape UnconnectedGradients function",
        "stratagem.loop.whole": "gradients",
        ".debugging": "assert_equal assert_greater assert_less assert_rank",
        ".version": "__version__=VERSION",
        ".keras.old_initializers": "constant_initializer=ConstantInitializer",
        "keras.initializers": """
            ones_initializer=Ones random_normal_initializer=RandomNormal random_uniform_initializer=RandomUniform
            zeros_initializer=Zeros
        """,
        ".compat.v1.logging": "get_logger",
        ".device_spec": "DeviceSpec",
        ".dtypes": """
            DType as_dtype bfloat16 bool complex128 complex64 double float16 float32 float64 half int16 int32 int64
            int8 string uint16 uint32 uint64 uint8
        """,
        ".tensors.checks": "Assert",
        ".tensors.variables": """
            IndexedSlices Module Tensor TypeSpec Variable VariableAggregation VariableSynchronization is_tensor
        """,
        ".tensors.creators": "variable_creator_scope",
        ".tensors.creation": """
            bitcast cast constant convert_to_tensor ensure_shape eye fill get_static_value guarantee_const
            identity identity_n linspace make_ndarray one_hot ones ones_like range rank saturate_cast shape
            shape_n size zeros zeros_like
        """,
        ".tensors.shapes": "TensorShape",
        "stratagem.data": "TensorSpec",
        "stratagem.data.ragged": "RaggedTensor",
        "stratagem.data.sparse": "SparseTensor",
        "stratagem.data.specs": "RaggedTensorSpec SparseTensorSpec",
        ".tensors.elementwise": """
            abs acos acosh add add_n asin asinh atan atan2 atanh clip_by_value complex cos cosh divide equal exp floor
            greater greater_equal less less_equal logical_and logical_not logical_or maximum minimum multiply negative
            not_equal pow realdiv round scalar_mul sigmoid sign sin sinh sqrt square subtract tan tanh truediv
            truncatediv truncatemod
        """,
        ".tensors.reductions": """
            argmax argmin cumsum reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod
            reduce_sum
        """,
        ".tensors.arranging": """
            argsort batch_to_space broadcast_dynamic_shape broadcast_static_shape broadcast_to concat expand_dims
            meshgrid pad parallel_stack repeat reshape reverse reverse_sequence roll sequence_mask sort space_to_batch
            space_to_batch_nd split squeeze stack tile transpose unstack
        """,
        ".tensors.texts": "as_string",
        ".tensors.indexing": """
            boolean_mask dynamic_partition dynamic_stitch gather gather_nd scatter_nd searchsorted slice strided_slice
            tensor_scatter_nd_add tensor_scatter_nd_max tensor_scatter_nd_min tensor_scatter_nd_sub
            tensor_scatter_nd_update unique unique_with_counts unravel_index where
        """,
        ".tensors.arrays": "TensorArray",
        ".tensors.control": "case cond foldl foldr map_fn scan switch_case vectorized_map while_loop",
        ".tensors.norms": "clip_by_global_norm clip_by_norm norm",
        ".tensors.control_and_debug": """
            control_dependencies custom_gradient device executing_eagerly grad_pass_through group init_scope
            inside_function name_scope no_op numpy_function print py_function recompute_grad stop_gradient tuple
        """,
        ".tensors.products": "einsum matmul tensordot",
        ".tensors.counting": "histogram_fixed_width histogram_fixed_width_bins",
        "numpy": "newaxis",
        "": """
            saved_model sysconfig test version initializers=.keras.initializers losses=.keras.losses
            metrics=.keras.metrics optimizers=.keras.optimizers
        """,
    },
    # tf.function rewrites functions without them; they are accepted.
    "autograph": {".autograph_marks": "set_verbosity"},
    "autograph.experimental": {".autograph_marks": "do_not_convert set_loop_options set_verbosity"},
    # Whole numbers, bit by bit.
    "bitwise": {".tensors.elementwise": "bitwise_and bitwise_or bitwise_xor invert left_shift right_shift"},
    # Text as bytes and back, and `v1`, as far as Estimator programs use it.
    "compat": {
        ".compat.text": """
            as_bytes as_str as_str_any as_text bytes_or_text_types complex_types dimension_at_index dimension_value
            integral_types path_to_str real_types
        """,
    },
    # What has no other meaning there is `tf`'s.
    "compat.v2": {
        ".": "*",
        ".compat.v1.switches": "enable_v2_behavior",
    },
    # Which devices there are and which are used; switches of TensorFlow's runtime.
    "config": {
        ".config.devices": """
            LogicalDevice LogicalDeviceConfiguration PhysicalDevice get_logical_device_configuration
            get_visible_devices list_logical_devices list_physical_devices set_logical_device_configuration
            set_visible_devices
        """,
        ".config.runtime": """
            experimental_connect_to_cluster experimental_connect_to_host experimental_functions_run_eagerly
            experimental_run_functions_eagerly functions_run_eagerly get_soft_device_placement run_functions_eagerly
            set_soft_device_placement
        """,
    },
    # Older spellings, and memory.
    "config.experimental": {
        ".config.devices": """
            LogicalDevice LogicalDeviceConfiguration PhysicalDevice
            VirtualDeviceConfiguration=LogicalDeviceConfiguration get_logical_device_configuration
            get_virtual_device_configuration=get_logical_device_configuration get_visible_devices list_logical_devices
            list_physical_devices set_logical_device_configuration
            set_virtual_device_configuration=set_logical_device_configuration set_visible_devices
        """,
        ".config.memory": """
            get_device_details get_memory_growth get_memory_info get_memory_usage reset_memory_stats set_memory_growth
        """,
        ".config.runtime": """
            disable_mlir_bridge enable_mlir_bridge enable_op_determinism enable_tensor_float_32_execution
            get_device_policy get_synchronous_execution set_device_policy set_synchronous_execution
            tensor_float_32_execution_enabled
        """,
    },
    "config.optimizer": {
        ".config.runtime": "get_experimental_options get_jit set_experimental_options set_jit",
    },
    "config.threading": {
        ".config.runtime": """
            get_inter_op_parallelism_threads get_intra_op_parallelism_threads set_inter_op_parallelism_threads
            set_intra_op_parallelism_threads
        """,
    },
    # The datasets of `stratagem.data`.
    "data": {
        "stratagem.data.specs": "DatasetSpec",
        "stratagem.data": "* Iterator=DatasetIterator NumpyIterator=DatasetIterator",
        ".data.options": "Options ThreadingOptions",
    },
    # Options, and the functions that are methods of `Dataset` by now.
    "data.experimental": {
        "stratagem.data.experimental": "*",
        ".data.options": "AutotuneOptions OptimizationOptions ThreadingOptions",
        "stratagem.data.files.comma_separated": "CsvDataset make_csv_dataset",
        ".data.older": """
            Counter RandomDataset TFRecordWriter assert_cardinality bucket_by_sequence_length choose_from_datasets
            copy_to_device dense_to_ragged_batch enumerate_dataset get_next_as_optional get_single_element
            get_structure group_by_window ignore_errors load map_and_batch parallel_interleave prefetch_to_device
            rejection_resample sample_from_datasets save scan shuffle_and_repeat snapshot take_while unbatch unique
        """,
    },
    # What parsed examples become.
    "ragged": {
        ".tensors.ragged": """
            constant map_flat_values range row_splits_to_segment_ids segment_ids_to_row_splits stack
        """,
    },
    "sparse": {
        "stratagem.data.sparse": "SparseTensor from_dense reorder",
        "stratagem.data.variable_length": "to_dense",
        ".tensors.sparse": """
            add map_values mask maximum minimum reduce_max reduce_sum segment_mean segment_sqrt_n segment_sum softmax
            sparse_dense_matmul
        """,
        ".tensors.sparse_arranging": """
            concat expand_dims eye fill_empty_rows reset_shape reshape retain slice split to_indicator transpose
        """,
    },
    "debugging": {
        ".tensors.checks": """
            Assert assert_all_finite assert_equal assert_greater assert_greater_equal assert_less assert_less_equal
            assert_near assert_negative assert_non_negative assert_non_positive assert_none_equal assert_positive
            assert_rank assert_rank_at_least assert_rank_in assert_scalar assert_shapes assert_type check_numerics
            disable_check_numerics disable_traceback_filtering enable_check_numerics enable_traceback_filtering
            is_numeric_tensor is_traceback_filtering_enabled set_log_device_placement
        """,
    },
    "dtypes": {".": "cast complex saturate_cast"},
    # The strategies, and what a custom loop asks of them.
    "distribute": {
        "stratagem.train": "Server",
        "stratagem.strategy.extended": "StrategyExtended",
        "stratagem": """
            CrossDeviceOps DistributedDataset DistributedIterator DistributedValues HierarchicalCopyAllReduce
            InputContext InputOptions InputReplicationMode MirroredStrategy MultiWorkerMirroredStrategy NcclAllReduce
            OneDeviceStrategy ParameterServerStrategy ReduceOp ReductionToOneDevice ReplicaContext RunOptions Strategy
            TPUStrategy experimental_set_strategy get_replica_context get_strategy has_strategy
            in_cross_replica_context
        """,
    },
    # Who is in the cluster.
    "distribute.cluster_resolver": {
        "stratagem.cluster_resolver": "*",
        ".tpu_system": "TPUClusterResolver",
    },
    # Asynchronous work on a cluster with parameter servers.
    "distribute.coordinator": {"stratagem.coordinator": "*"},
    # Older spellings, and options of communication.
    "distribute.experimental": {"stratagem.experimental": "*"},
    # The older place of `tf.distribute.coordinator`.
    "distribute.experimental.coordinator": {"stratagem.coordinator": "*"},
    # How variables are cut for parameter servers.
    "distribute.experimental.partitioners": {"stratagem.ps.partitioners": "*"},
    # The names by which programs catch what goes wrong.
    "errors": {
        "stratagem.core.errors": """
            AbortedError=PeerError CancelledError DataLossError=CheckpointError DeadlineExceededError=PeerError
            FailedPreconditionError=UsageError InvalidArgumentError=InputError OpError=StratagemError OutOfRangeError
            UnavailableError
        """,
        "builtins": """
            AlreadyExistsError=FileExistsError NotFoundError=FileNotFoundError PermissionDeniedError=PermissionError
            UnimplementedError=NotImplementedError
        """,
        "jax.errors": """
            InternalError=JaxRuntimeError ResourceExhaustedError=JaxRuntimeError UnknownError=JaxRuntimeError
        """,
    },
    # `stratagem.estimator`.
    "estimator": {
        "stratagem.estimator": "*",
        "": "inputs=stratagem.estimator.inputs",
    },
    # Early stopping, and other hooks of `stratagem.estimator`.
    "estimator.experimental": {"stratagem.estimator": "*"},
    # What a served model gets and gives.
    "estimator.export": {"stratagem.estimator.export": "*"},
    # NumPy's functions, which are those of `jax.numpy`.
    "experimental": {"": "numpy=jax.numpy"},
    # Columns of features, for Estimators.
    "feature_column": {"stratagem.estimator.feature_column": "*"},
    "image": {
        ".tensors.pictures": """
            ResizeMethod central_crop crop_to_bounding_box extract_patches flip_left_right flip_up_down
            image_gradients pad_to_bounding_box per_image_standardization psnr random_crop random_flip_left_right
            random_flip_up_down resize resize_with_crop_or_pad resize_with_pad rot90 sobel_edges stateless_random_crop
            stateless_random_flip_left_right stateless_random_flip_up_down total_variation transpose
        """,
        ".tensors.colours": """
            adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation convert_image_dtype
            grayscale_to_rgb hsv_to_rgb random_brightness random_contrast random_hue random_saturation
            rgb_to_grayscale rgb_to_hsv rgb_to_yiq rgb_to_yuv stateless_random_brightness stateless_random_contrast
            stateless_random_hue stateless_random_saturation yiq_to_rgb yuv_to_rgb
        """,
        ".tensors.similarity": "ssim",
        ".tensors.distorted_boxes": "sample_distorted_bounding_box stateless_sample_distorted_bounding_box",
        "stratagem.io": "decode_image decode_jpeg decode_png",
        ".io.images": "decode_bmp decode_gif encode_jpeg encode_png extract_jpeg_shape is_jpeg",
    },
    # Record files, what is in them, files.
    "io": {
        "": "gfile",
        "stratagem.io": "*",
        ".io.files": "TFRecordOptions matching_files parse_tensor read_file serialize_tensor write_file",
        ".io.text": "decode_csv",
        ".io.images": "decode_bmp decode_gif encode_jpeg encode_png extract_jpeg_shape is_jpeg",
    },
    "linalg": {
        ".tensors.matrices": """
            adjoint band_part cholesky cholesky_solve det diag diag_part eigh eigvalsh expm inv logdet lstsq
            matrix_transpose matvec normalize pinv qr set_diag slogdet solve svd tensor_diag tensor_diag_part trace
            triangular_solve
        """,
        ".tensors.products": "cross einsum matmul tensordot",
        ".tensors.creation": "eye",
        ".tensors.norms": "global_norm norm",
        ".tensors.neural": "l2_normalize",
        ".tensors.factors": """
            lu lu_matrix_inverse lu_reconstruct lu_solve matrix_rank tridiagonal_matmul tridiagonal_solve
        """,
    },
    # Tables from keys to values.
    "lookup": {
        ".lookup.initializers": "KeyValueTensorInitializer TextFileIndex TextFileInitializer",
        ".lookup.tables": "StaticHashTable StaticVocabularyTable",
    },
    "lookup.experimental": {".lookup.changing": "DenseHashTable MutableHashTable"},
    # Functions of numbers.
    "math": {
        ".tensors.elementwise": """
            abs accumulate_n acos acosh add add_n angle asin asinh atan atan2 atanh bessel_i0 bessel_i0e bessel_i1
            bessel_i1e betainc ceil conj cos cosh digamma divide divide_no_nan equal erf erfc erfcinv erfinv exp expm1
            floor floordiv floormod greater greater_equal igamma igammac imag is_finite is_inf is_nan lbeta less
            less_equal lgamma log log1p log_sigmoid logical_and logical_not logical_or logical_xor maximum minimum mod
            multiply multiply_no_nan ndtri negative nextafter not_equal polygamma polyval pow real reciprocal
            reciprocal_no_nan rint round rsqrt scalar_mul sigmoid sign sin sinh softplus softsign sqrt square
            squared_difference subtract tan tanh truediv xdivy xlog1py xlogy zeta
        """,
        ".tensors.neural": "approx_max_k approx_min_k in_top_k l2_normalize log_softmax softmax top_k",
        ".tensors.reductions": """
            argmax argmin count_nonzero cumprod cumsum cumulative_logsumexp is_non_decreasing is_strictly_increasing
            reduce_all reduce_any reduce_euclidean_norm reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod
            reduce_std reduce_sum reduce_variance zero_fraction
        """,
        ".tensors.counting": """
            bincount confusion_matrix segment_max segment_mean segment_min segment_prod segment_sum
            unsorted_segment_max unsorted_segment_mean unsorted_segment_min unsorted_segment_prod
            unsorted_segment_sqrt_n unsorted_segment_sum
        """,
        ".tensors.indexing": "invert_permutation",
    },
    # Functions of Bessel and others; those of them that JAX has.
    "math.special": {".tensors.elementwise": "bessel_i0 bessel_i0e bessel_i1 bessel_i1e expint spence"},
    # Nested structures.
    "nest": {".nested": "assert_same_structure flatten is_nested map_structure pack_sequence_as"},
    # Functions of neural networks, and the scaling of losses over replicas.
    "nn": {
        ".tensors.neural": """
            approx_max_k approx_min_k bias_add crelu dropout elu embedding_lookup gelu in_top_k l2_loss l2_normalize
            leaky_relu local_response_normalization log_poisson_loss log_softmax lrn relu relu6 selu
            sigmoid_cross_entropy_with_logits silu softmax softmax_cross_entropy_with_logits
            sparse_softmax_cross_entropy_with_logits swish top_k weighted_cross_entropy_with_logits
        """,
        ".tensors.windows": """
            atrous_conv2d atrous_conv2d_transpose conv1d conv1d_transpose conv2d conv2d_transpose conv3d
            conv3d_transpose conv_transpose convolution depthwise_conv2d depthwise_conv2d_backprop_filter
            depthwise_conv2d_backprop_input separable_conv2d
        """,
        ".tensors.pools": """
            avg_pool avg_pool1d avg_pool2d avg_pool3d dilation2d erosion2d max_pool max_pool1d max_pool2d max_pool3d
            pool
        """,
        ".tensors.statistics": """
            batch_norm_with_global_normalization batch_normalization moments normalize_moments sufficient_statistics
            weighted_moments
        """,
        "stratagem.nn": "compute_average_loss scale_regularization_loss",
        ".tensors.arranging": "depth_to_space space_to_batch space_to_depth",
        ".tensors.elementwise": "sigmoid softplus softsign tanh",
        ".tensors.reductions": "zero_fraction",
    },
    # The profiler of JAX, whose traces TensorBoard shows.
    "profiler": {},
    "profiler.experimental": {".profiling": "Profile ProfilerOptions Trace start stop"},
    "random": {
        ".tensors.draws": """
            Generator categorical fold_in=stateless_fold_in gamma get_global_generator normal poisson
            set_global_generator shuffle split=stateless_split stateless_categorical stateless_normal
            stateless_truncated_normal stateless_uniform truncated_normal uniform
        """,
        ".tensors.seeds": "set_seed",
        "": "experimental=.tensors.draws",
    },
    # Transforms of Fourier, frames of sound and their spectra.
    "signal": {
        ".tensors.fourier": """
            fft fft2d fft3d fftshift ifft ifft2d ifft3d ifftshift irfft irfft2d irfft3d rfft rfft2d rfft3d
        """,
        ".tensors.frames": """
            frame hamming_window hann_window inverse_stft inverse_stft_window_fn kaiser_bessel_derived_window
            kaiser_window overlap_and_add stft vorbis_window
        """,
        ".tensors.spectra": """
            dct idct inverse_mdct linear_to_mel_weight_matrix mdct mfccs_from_log_mel_spectrograms
        """,
    },
    "strings": {
        ".tensors.texts": """
            as_string bytes_split format join length lower reduce_join regex_full_match regex_replace split strip
            substr to_hash_bucket_fast to_number unicode_decode unicode_split upper
        """,
    },
    # Event files for TensorBoard.
    "summary": {
        ".summary.writer": """
            SummaryWriter create_file_writer create_noop_writer flush record_if should_record_summaries
        """,
        ".summary.records": "audio histogram image scalar text",
        ".profiling": "trace_export trace_off trace_on",
    },
    # The step that counts where none is given, and scopes of names.
    "summary.experimental": {".summary.writer": "get_step set_step summary_scope"},
    # As far as programs call it before `TPUStrategy`.
    "tpu": {},
    # What starts TPUs in TensorFlow.
    "tpu.experimental": {".tpu_system": "initialize_tpu_system shutdown_tpu_system"},
    # Checkpoints, the cluster's description, examples.
    "train": {
        "stratagem.train": "*",
        ".moving_average": "ExponentialMovingAverage",
        ".threads": "Coordinator",
        ".checkpoints": "get_checkpoint_state list_variables load_checkpoint load_variable",
    },
}
