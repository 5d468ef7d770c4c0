"""Replacements for names of Keras 2 that Keras 3 dropped."""

from __future__ import annotations

from typing import Final

_ENQUEUER: Final = "Write keras.utils.PyDataset(workers=4, use_multiprocessing=True), which fit takes."

TABLE: Final = {
    "tf.keras.applications": (
        "Write a model of tf.keras.applications that is there (ResNet, EfficientNetV2, ConvNeXt), or keras_hub."
    ),
    "tf.keras.backend": (
        "Write keras.ops or tf, whose functions have the names of NumPy and TensorFlow: conv2d is tf.nn.conv2d, "
        "resize_images tf.image.resize, local_conv1d keras.ops.conv, random_bernoulli keras.random.binomial."
    ),
    "tf.keras.callbacks.BaseLogger": "Leave it out: fit shows mean values by itself.",
    "tf.keras.callbacks.SidecarEvaluatorModelExport": "Write tf.keras.callbacks.ModelCheckpoint.",
    "tf.keras.dtensor": "Write a strategy, or keras.distribution.",
    "tf.keras.estimator.model_to_estimator": "Write tf.estimator.model_to_estimator, or stratagem.estimator's.",
    "tf.keras.experimental.LinearModel tf.keras.experimental.WideDeepModel": (
        "Write a model with keras.Input and Dense layers, or tf.estimator.DNNLinearCombinedClassifier."
    ),
    "tf.keras.experimental.SequenceFeatures tf.keras.layers.DenseFeatures": (
        "Write keras.utils.FeatureSpace, or preprocessing layers (docs/estimator.md has feature columns of Estimators)."
    ),
    "tf.keras.layers.AbstractRNNCell": "Write a keras.layers.Layer with state_size and call(inputs, states).",
    "tf.keras.layers.LocallyConnected1D tf.keras.layers.LocallyConnected2D": (
        "Write keras.layers.Layer with keras.ops.image.extract_patches and keras.ops.einsum."
    ),
    "tf.keras.layers.RandomHeight tf.keras.layers.RandomWidth": "Write keras.layers.RandomZoom, or RandomCrop.",
    "tf.keras.layers.ThresholdedReLU": "Write keras.layers.ReLU(threshold=theta).",
    "tf.keras.layers.experimental.DynamicEmbedding tf.keras.layers.experimental.DynamicLookup": (
        "Write keras.layers.Embedding of fixed size over hashed ids: keras.layers.Hashing."
    ),
    "tf.keras.layers.experimental.RandomFourierFeatures": "Write Dense(trainable=False) and keras.ops.cos.",
    "tf.keras.layers.experimental.preprocessing": "Write keras.layers by that name.",
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
    "tf.keras.preprocessing.text tf.keras.preprocessing.text_dataset_from_directory": (
        "Write the tokens in Python: ids = {word: i for i, word in enumerate(words)}; keras.utils.pad_sequences."
    ),
}
"""Names, or namespaces with all that is in them, and their repair."""
