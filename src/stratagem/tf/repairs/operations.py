"""Replacements for operations that `stratagem.tf` does not have."""

from __future__ import annotations

from typing import Final

TABLE: Final = {
    "tf.parallel_stack": "Write tf.stack.",
    "tf.check_pinned": "Write tf.identity, or nothing.",
    "tf.conv tf.conv2d_backprop_filter_v2 tf.conv2d_backprop_input_v2": "Write tf.nn.conv2d, keras.ops.conv.",
    "tf.fftnd tf.ifftnd tf.irfftnd tf.rfftnd": "Write jax.numpy.fft.fftn, ifftn, irfftn, rfftn.",
    "tf.approx_top_k": "Write jax.lax.approx_max_k.",
    "tf.fingerprint": "Write hashlib in a function given to Dataset.map.",
    "tf.resource tf.variant": "Such dtypes hold TensorFlow's own objects; hold Python objects in Python.",
    "tf.is_symbolic_tensor": "Write isinstance(x, jax.core.Tracer).",
    "tf.get_static_value": "Write the value itself, or isinstance(x, jax.core.Tracer) to tell whether it is known.",
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
    "tf.linalg.logm": "Write the logarithm by jax.numpy.linalg.eigh: v @ diag(log(w)) @ v.T for a symmetric matrix.",
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
    "tf.signal tf.spectral tf.fft2d tf.fft3d tf.ifft tf.ifft2d tf.ifft3d": (
        "Write jax.numpy.fft, jax.scipy.signal, or keras.ops.stft, istft, fft, rfft."
    ),
    "tf.image.non_max_suppression tf.image.non_max_suppression_overlaps tf.image.non_max_suppression_padded "
    "tf.image.non_max_suppression_with_scores tf.image.combined_non_max_suppression "
    "tf.image.generate_bounding_box_proposals": (
        "Write keras_hub.layers.NonMaxSuppression, or NumPy after predict: the number of boxes depends on values."
    ),
    "tf.image.crop_and_resize tf.image.extract_glimpse": (
        "Write keras.ops.image.crop_images and resize, or keras.ops.image.affine_transform."
    ),
    "tf.image.decode_and_crop_jpeg": "Write tf.io.decode_jpeg(contents)[top:top + height, left:left + width].",
    "tf.image.extract_jpeg_shape tf.image.is_jpeg": "Write tf.io by that name.",
    """tf.image.adjust_jpeg_quality tf.image.random_jpeg_quality tf.image.stateless_random_jpeg_quality""": (
        "Write tf.io.decode_jpeg(tf.io.encode_jpeg(image, quality=quality)) in a function given to Dataset.map."
    ),
    "tf.image.draw_bounding_boxes": "Write keras.visualization.draw_bounding_boxes.",
    "tf.image.sample_distorted_bounding_box tf.image.stateless_sample_distorted_bounding_box": (
        "Write keras.layers.RandomCrop, or tf.image.random_crop."
    ),
    "tf.image.ssim tf.image.ssim_multiscale": "Write it with tf.nn.avg_pool2d of means and products, or use a metric.",
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
        "Write jax.random by that name with jax.random.key(seed)."
    ),
    "tf.strings tf.string_split tf.string_to_hash_bucket tf.string_to_hash_bucket_fast "
    "tf.string_to_hash_bucket_strong": (
        "Write Python in a function given to Dataset.map, where text is bytes: hashlib for buckets, str.split."
    ),
    "tf.debugging.assert_proper_iterable tf.assert_proper_iterable": "Write isinstance(x, (list, tuple)).",
    "tf.debugging.assert_same_float_dtype tf.assert_same_float_dtype tf.debugging.assert_integer tf.assert_integer": (
        "Write tf.debugging.assert_type(x, dtype)."
    ),
    """tf.debugging.disable_traceback_filtering tf.debugging.enable_traceback_filtering
    tf.debugging.is_traceback_filtering_enabled""": (
        "Write jax.config.update('jax_traceback_filtering', 'off'), keras.config.disable_traceback_filtering()."
    ),
    "tf.verify_tensor_all_finite": "Write tf.debugging.assert_all_finite(x, message).",
    "tf.dtypes.cast tf.dtypes.complex tf.dtypes.saturate_cast": "Write tf by that name: tf.cast.",
    "tf.dtypes.experimental": "Write the dtype's name, as ml_dtypes has it: 'float8_e4m3fn', 'int4'.",
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
    "tf.nondifferentiable_batch_function": "Requests to a server are batched by the server; call the model.",
    "tf.security tf.python tf.core tf.compiler": "These are TensorFlow's private modules; use the public names.",
    "tf.compat.forward_compatible tf.compat.forward_compatibility_horizon": "Leave it out: there is one version here.",
}
"""Names, or namespaces with all that is in them, and their repair."""
