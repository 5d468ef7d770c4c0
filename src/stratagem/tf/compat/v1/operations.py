"""Where operations are that TensorFlow 1 had in `tf` itself."""

from __future__ import annotations

from typing import Final

_SAME: Final = {
    "debugging": """assert_greater_equal assert_less_equal assert_near assert_negative assert_non_negative
    assert_non_positive assert_none_equal assert_positive assert_rank_at_least assert_rank_in assert_scalar assert_type
    check_numerics is_numeric_tensor""",
    "errors": "OpError",
    "image": "random_crop",
    "io": "parse_tensor serialize_tensor",
    "linalg": "cholesky cholesky_solve cross global_norm matrix_transpose qr svd trace",
    "math": """accumulate_n angle betainc bincount ceil conj count_nonzero cumprod digamma erf erfc expm1 floordiv
    floormod igamma igammac imag invert_permutation is_finite is_inf is_nan is_non_decreasing
    is_strictly_increasing lbeta lgamma log log1p log_sigmoid logical_xor mod polygamma real reciprocal rint
    rsqrt segment_max segment_mean segment_min segment_prod segment_sum squared_difference unsorted_segment_max
    unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n
    unsorted_segment_sum zeta""",
    "nn": "depth_to_space space_to_depth",
    "random": "truncated_normal",
    "strings": "reduce_join regex_replace substr",
    "version": """COMPILER_VERSION GIT_VERSION GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER
    GRAPH_DEF_VERSION_MIN_PRODUCER""",
}
"""Names that are now in a namespace, unchanged."""

_RENAMED: Final = {
    "arg_max": ":argmax",
    "arg_min": ":argmin",
    "diag": ".linalg:tensor_diag",
    "diag_part": ".linalg:tensor_diag_part",
    "dimension_at_index": ".compat:dimension_at_index",
    "dimension_value": ".compat:dimension_value",
    "div_no_nan": ".math:divide_no_nan",
    "floor_div": ".math:floordiv",
    "glorot_normal_initializer": ".keras.initializers:GlorotNormal",
    "glorot_uniform_initializer": ".keras.initializers:GlorotUniform",
    "lin_space": ":linspace",
    "matrix_band_part": ".linalg:band_part",
    "matrix_determinant": ".linalg:det",
    "matrix_diag": ".linalg:diag",
    "matrix_diag_part": ".linalg:diag_part",
    "matrix_inverse": ".linalg:inv",
    "matrix_set_diag": ".linalg:set_diag",
    "matrix_solve": ".linalg:solve",
    "matrix_solve_ls": ".linalg:lstsq",
    "matrix_triangular_solve": ".linalg:triangular_solve",
    "orthogonal_initializer": ".keras.initializers:Orthogonal",
    "random_normal": ".random:normal",
    "random_shuffle": ".random:shuffle",
    "random_uniform": ".random:uniform",
    "reverse_v2": ":reverse",
    "self_adjoint_eig": ".linalg:eigh",
    "self_adjoint_eigvals": ".linalg:eigvalsh",
    "set_random_seed": ".random:set_seed",
    "string_join": ".strings:join",
    "string_strip": ".strings:strip",
    "string_to_number": ".strings:to_number",
    "tensor_scatter_add": ":tensor_scatter_nd_add",
    "tensor_scatter_sub": ":tensor_scatter_nd_sub",
    "tensor_scatter_update": ":tensor_scatter_nd_update",
    "truncated_normal_initializer": ".keras.initializers:TruncatedNormal",
    "variance_scaling_initializer": ".keras.initializers:VarianceScaling",
    "where_v2": ":where",
}
"""Names that have another name now, and where."""

OPERATIONS: Final = {
    **{name: f"stratagem.tf.{place}:{name}" for place, names in _SAME.items() for name in names.split()},
    **{old: f"stratagem.tf{new}" for old, new in _RENAMED.items()},
    **{
        name: f"stratagem.tf.compat.v1.other_order:{name}"
        for name in ("batch_to_space", "confusion_matrix", "space_to_batch")
    },
}
"""Where each lives."""
