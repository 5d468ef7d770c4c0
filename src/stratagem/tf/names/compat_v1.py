"""Names of `tf.compat.v1` that are not as in `tf`: where each lives."""

from __future__ import annotations

from typing import Final

COMPAT_V1: Final[dict[str, dict[str, str]]] = {
    # What Estimator programs use of it. What has no other meaning there is `tf`'s.
    "compat.v1": {
        "": "app logging",
        ".": """
            * arg_max=argmax arg_min=argmin lin_space=linspace reverse_v2=reverse
            tensor_scatter_add=tensor_scatter_nd_add tensor_scatter_sub=tensor_scatter_nd_sub
            tensor_scatter_update=tensor_scatter_nd_update where_v2=where
        """,
        ".compat.v1.switches": """
            disable_control_flow_v2 disable_eager_execution disable_resource_variables disable_tensor_equality
            disable_v2_behavior disable_v2_tensorshape enable_control_flow_v2 enable_eager_execution
            enable_resource_variables enable_tensor_equality enable_v2_behavior enable_v2_tensorshape
            executing_eagerly_outside_functions reset_default_graph
        """,
        "stratagem.estimator.graph": """
            AUTO_REUSE GraphKeys add_to_collection control_dependencies get_collection get_variable global_variables
            name_scope trainable_variables variable_scope
        """,
        ".compat.v1.session_config": "ConfigProto GPUOptions GraphOptions OptimizerOptions",
        ".debugging": """
            assert_greater_equal assert_less_equal assert_near assert_negative assert_non_negative assert_non_positive
            assert_none_equal assert_positive assert_rank_at_least assert_rank_in assert_scalar assert_type
            check_numerics is_numeric_tensor
        """,
        ".errors": "OpError",
        ".image": "random_crop",
        ".io": "parse_tensor serialize_tensor",
        ".linalg": """
            cholesky cholesky_solve cross diag=tensor_diag diag_part=tensor_diag_part global_norm
            matrix_band_part=band_part matrix_determinant=det matrix_diag=diag matrix_diag_part=diag_part
            matrix_inverse=inv matrix_set_diag=set_diag matrix_solve=solve matrix_solve_ls=lstsq matrix_transpose
            matrix_triangular_solve=triangular_solve qr self_adjoint_eig=eigh self_adjoint_eigvals=eigvalsh svd trace
        """,
        ".math": """
            accumulate_n angle betainc bincount ceil conj count_nonzero cumprod digamma div_no_nan=divide_no_nan erf
            erfc expm1 floor_div=floordiv floordiv floormod igamma igammac imag invert_permutation is_finite is_inf
            is_nan is_non_decreasing is_strictly_increasing lbeta lgamma log log1p log_sigmoid logical_xor mod
            polygamma real reciprocal rint rsqrt segment_max segment_mean segment_min segment_prod segment_sum
            squared_difference unsorted_segment_max unsorted_segment_mean unsorted_segment_min unsorted_segment_prod
            unsorted_segment_sqrt_n unsorted_segment_sum zeta
        """,
        ".nn": "depth_to_space space_to_depth",
        ".random": """
            random_normal=normal random_shuffle=shuffle random_uniform=uniform set_random_seed=set_seed
            truncated_normal
        """,
        ".sparse": """
            sparse_add=add sparse_concat=concat sparse_fill_empty_rows=fill_empty_rows sparse_mask=mask
            sparse_maximum=maximum sparse_minimum=minimum sparse_reduce_max=reduce_max sparse_reduce_sum=reduce_sum
            sparse_reorder=reorder sparse_reset_shape=reset_shape sparse_reshape=reshape sparse_retain=retain
            sparse_segment_mean=segment_mean sparse_segment_sqrt_n=segment_sqrt_n sparse_segment_sum=segment_sum
            sparse_slice=slice sparse_softmax=softmax sparse_split=split
            sparse_tensor_dense_matmul=sparse_dense_matmul sparse_tensor_to_dense=to_dense
            sparse_to_indicator=to_indicator sparse_transpose=transpose
        """,
        ".strings": "reduce_join regex_replace string_join=join string_strip=strip string_to_number=to_number substr",
        ".version": """
            COMPILER_VERSION GIT_VERSION GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER
            GRAPH_DEF_VERSION_MIN_PRODUCER VERSION
        """,
        ".compat": "dimension_at_index dimension_value",
        ".keras.initializers": """
            glorot_normal_initializer=GlorotNormal glorot_uniform_initializer=GlorotUniform
            orthogonal_initializer=Orthogonal truncated_normal_initializer=TruncatedNormal
            variance_scaling_initializer=VarianceScaling
        """,
        ".compat.v1.other_order": "batch_to_space confusion_matrix space_to_batch sparse_to_dense",
        "stratagem.io": """
            FixedLenFeature FixedLenSequenceFeature VarLenFeature decode_raw parse_example parse_single_example
        """,
        ".keras.old_initializers": "constant_initializer=OldConstantInitializer",
        ".io.text": "decode_csv",
        "stratagem.estimator": "group",
        ".io.files": "matching_files read_file write_file",
    },
    # `tf.data`, and iterators as functions.
    "compat.v1.data": {
        ".data": "*",
        ".compat.v1.iterators": "get_output_classes get_output_shapes get_output_types make_one_shot_iterator",
    },
    "compat.v1.estimator": {".estimator": "*"},
    # Those of absl, as in TensorFlow; the values read the command line by themselves.
    "compat.v1.flags": {"absl.flags": "*", ".compat.v1.app": "FLAGS"},
    # The names that `tf.io.gfile` had.
    "compat.v1.gfile": {
        ".io.gfile": """
            Copy=copy DeleteRecursively=rmtree Exists=exists FastGFile=GFile GFile Glob=glob IsDirectory=isdir
            ListDirectory=listdir MakeDirs=makedirs MkDir=mkdir Open=GFile Remove=remove Rename=rename Stat=stat
            Walk=walk
        """,
    },
    # Layers as functions of a `model_fn`.
    "compat.v1.layers": {"stratagem.estimator.layers": "*"},
    # Losses as functions of a `model_fn`.
    "compat.v1.losses": {"stratagem.estimator.losses": "*"},
    # Metrics as functions of a `model_fn`.
    "compat.v1.metrics": {"stratagem.estimator.metrics": "*"},
    # The older place of TFRecord files.
    "compat.v1.python_io": {
        ".io.files": "TFRecordOptions",
        "stratagem.io": "TFRecordWriter",
        ".compat.v1.iterators": "tf_record_iterator",
    },
    # The older places of names of signatures, and of tags.
    "compat.v1.saved_model": {".saved_model": "*"},
    "compat.v1.saved_model.signature_constants": {".saved_model": "DEFAULT_SERVING_SIGNATURE_DEF_KEY"},
    "compat.v1.saved_model.tag_constants": {".saved_model": "GPU SERVING TPU TRAINING"},
    # `tf.sparse`, and the older name of a product.
    "compat.v1.sparse": {".sparse": "* matmul=sparse_dense_matmul"},
    # Summaries of a `model_fn`.
    "compat.v1.summary": {"stratagem.estimator.summary": "*"},
    # Optimizers, hooks and the global step of Estimator programs; the rest is `tf.train`'s.
    "compat.v1.train": {
        ".train": "*",
        "stratagem.estimator.optimizers": """
            AdadeltaOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer GradientDescentOptimizer MomentumOptimizer
            ProximalAdagradOptimizer RMSPropOptimizer
        """,
        "stratagem.estimator.decays": """
            cosine_decay cosine_decay_restarts exponential_decay inverse_time_decay linear_cosine_decay
            natural_exp_decay piecewise_constant piecewise_constant_decay=piecewise_constant polynomial_decay
        """,
        "stratagem.estimator": """
            CheckpointSaverHook CheckpointSaverListener FinalOpsHook LoggingTensorHook NanLossDuringTrainingError
            NanTensorHook ProfilerHook Scaffold SecondOrStepTimer SessionRunArgs SessionRunContext SessionRunHook
            SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook
            create_global_step=get_or_create_global_step get_global_step get_or_create_global_step
        """,
        ".checkpoints": "NewCheckpointReader=load_checkpoint",
    },
}
