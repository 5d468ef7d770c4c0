"""Names of `tf.keras` that are not Keras 3's own, or that it has in another place: where each lives."""

from __future__ import annotations

from typing import Final

_AS_IN_KERAS: Final = """
    activations applications config constraints datasets initializers mixed_precision ops optimizers
    optimizers.schedules random wrappers
"""
"""Modules whose names are all Keras's own."""

_SHORT: Final = """
    KLD=kl_divergence MAE=mean_absolute_error MAPE=mean_absolute_percentage_error
    MSLE=mean_squared_logarithmic_error kld=kl_divergence kullback_leibler_divergence=kl_divergence
    logcosh=log_cosh mae=mean_absolute_error mape=mean_absolute_percentage_error
    msle=mean_squared_logarithmic_error
"""
"""Short names of functions, which Keras 2 had among losses and metrics."""

_SQUARED: Final = "MSE=mean_squared_error mean_squared_error mse=mean_squared_error"

KERAS: Final[dict[str, dict[str, str]]] = {
    **{f"keras.{name}": {f"keras.{name}": "*"} for name in _AS_IN_KERAS.split()},
    # Keras 3, with what has moved or gone since Keras 2.
    "keras": {"keras": "*", ".keras.old_models": "Input"},
    # Keras's, and the functions of Keras 2's `K`, over `keras.ops`.
    "keras.backend": {
        "keras.backend": "*",
        "keras.ops": """
            abs all any cast ceil cos elu exp floor log logsumexp max mean min ndim shape sigmoid sign sin softmax
            softplus softsign square stack std sum tanh var
        """,
        ".keras.old_backend": """
            arange argmax argmin batch_dot batch_flatten batch_get_value batch_normalization batch_set_value bias_add
            binary_crossentropy cast_to_floatx categorical_crossentropy clip concatenate constant count_params cumprod
            cumsum dot dropout dtype equal eval expand_dims eye flatten function gather get_value greater greater_equal
            hard_sigmoid in_top_k int_shape is_sparse l2_normalize learning_phase less less_equal
            manual_variable_initialization maximum minimum not_equal one_hot ones ones_like permute_dimensions pow
            print_tensor prod random_normal random_uniform relu repeat repeat_elements reshape reverse round
            set_learning_phase set_value sparse_categorical_crossentropy sqrt squeeze stop_gradient switch
            temporal_padding tile transpose truncated_normal update update_add update_sub variable zeros zeros_like
        """,
        ".keras.compat": "rnn",
        "keras.utils": "clear_session",
    },
    # Keras's, and those of ours that strategies need.
    "keras.callbacks": {
        "keras.callbacks": "*",
        "stratagem.callbacks": "BackupAndRestore",
        ".keras.callbacks.model_checkpoint": "ModelCheckpoint",
        ".keras.callbacks.monitored": "EarlyStopping ReduceLROnPlateau",
        ".keras.callbacks.tensorboard": "TensorBoard",
    },
    "keras.callbacks.experimental": {"stratagem.callbacks": "BackupAndRestore"},
    # A Keras model as an Estimator.
    "keras.estimator": {"stratagem.estimator": "model_to_estimator"},
    "keras.experimental": {
        "keras.optimizers.schedules": "CosineDecay CosineDecayRestarts",
        "stratagem.train": "SidecarEvaluator",
    },
    # Keras's, and lookups of words that need no TensorFlow.
    "keras.layers": {
        "keras.layers": "* CuDNNGRU=GRU CuDNNLSTM=LSTM",
        ".keras.layers.of_keras": """
            AveragePooling1D AveragePooling2D AveragePooling3D AvgPool1D=AveragePooling1D AvgPool2D=AveragePooling2D
            AvgPool3D=AveragePooling3D Dense Discretization Embedding InputLayer MultiHeadAttention Normalization
            RepeatVector
        """,
        ".keras.layers.recurrent": "GRU GRUCell LSTM LSTMCell RNN SimpleRNN SimpleRNNCell StackedRNNCells",
        ".keras.old_models": "Input",
        ".keras.hashing": "HashedCrossing Hashing",
        ".keras.text_inputs": "IntegerLookup StringLookup TextVectorization",
    },
    "keras.layers.experimental": {
        "keras.layers": "EinsumDense",
        ".keras.layers.synchronized": "SyncBatchNormalization",
    },
    # `tf.keras.layers` by its old name.
    "keras.layers.experimental.preprocessing": {".keras.layers": "*"},
    # Keras's, and `Reduction`.
    "keras.losses": {
        "keras.losses": f"* {_SHORT}",
        ".keras.complex_losses": f"{_SQUARED} get",
        ".keras.old_losses": "binary_crossentropy",
        ".keras.reduction": "Reduction",
    },
    "keras.metrics": {
        "keras.metrics": "*",
        "keras.losses": _SHORT,
        ".keras.complex_losses": _SQUARED,
        ".keras.old_losses": "binary_crossentropy",
    },
    "keras.mixed_precision.experimental": {
        "keras.mixed_precision": "LossScaleOptimizer Policy global_policy set_policy=set_global_policy",
    },
    # Keras's; models are saved to and loaded from folders too.
    "keras.models": {
        "keras.models": "*",
        ".keras.folders": "load_model save_model",
    },
    # `tf.keras.optimizers` by its old name.
    "keras.optimizers.experimental": {"keras.optimizers": "*"},
    # There is one kind of optimizers, which takes the old arguments too.
    "keras.optimizers.legacy": {"keras.optimizers": "*"},
    # Datasets from files and arrays, and Keras 2's ways of preparing data.
    "keras.preprocessing": {
        "stratagem.data": "image_dataset_from_directory text_dataset_from_directory",
        ".keras.timeseries": "timeseries_dataset_from_array",
    },
    # Keras 2's, which Keras 3 still has.
    "keras.preprocessing.image": {
        "keras.preprocessing.image": "*",
        ".keras.compat": """
            DirectoryIterator ImageDataGenerator Iterator NumpyArrayIterator apply_affine_transform
            apply_brightness_shift apply_channel_shift random_brightness random_channel_shift random_rotation
            random_shear random_shift random_zoom
        """,
        "stratagem.data": "image_dataset_from_directory",
    },
    # Keras 2's, which Keras 3 still has.
    "keras.preprocessing.sequence": {
        "keras.preprocessing.sequence": "*",
        ".keras.compat": "TimeseriesGenerator make_sampling_table skipgrams",
    },
    # Keras 2's, which Keras 3 still has.
    "keras.preprocessing.text": {
        ".keras.compat": "Tokenizer hashing_trick one_hot text_to_word_sequence tokenizer_from_json",
    },
    # Keras's own, and `l1_l2` with its old defaults.
    "keras.regularizers": {
        "keras.regularizers": "*",
        ".keras.old_regularizers": "l1_l2",
    },
    # Keras's; models are saved to and loaded from folders too.
    "keras.saving": {
        "keras.saving": "*",
        ".keras.folders": "load_model save_model",
    },
    # Keras's, and datasets from files that need no TensorFlow.
    "keras.utils": {
        "keras.utils": "*",
        ".keras.categories": "to_categorical",
        ".keras.old_archives": "get_file",
        "stratagem.train": "SidecarEvaluator",
        "stratagem.data": "image_dataset_from_directory text_dataset_from_directory",
        ".keras.split": "split_dataset",
        ".keras.timeseries": "timeseries_dataset_from_array",
    },
    "keras.utils.experimental": {
        "stratagem.experimental": "DatasetCreator",
        "stratagem.train": "SidecarEvaluator",
    },
}
