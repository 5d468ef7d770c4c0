"""`Reduction`: Keras 2's names for the ways to reduce the losses of examples to one number."""

from __future__ import annotations


class Reduction:
    """The values of `reduction` (`tf.keras.losses.Reduction`).

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/losses/Reduction

    Attributes:
        AUTO: The mean over the batch; refused in a custom loop under a strategy, as in TensorFlow.
        NONE: A loss for each example.
        SUM: Their sum.
        SUM_OVER_BATCH_SIZE: Their mean.

    Example:
        >>> import keras
        >>> keras.losses.MeanSquaredError(reduction=Reduction.NONE)([[1.0], [2.0]], [[0.0], [0.0]]).tolist()
        [1.0, 4.0]
    """

    AUTO = "sum_over_batch_size"
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Return all values."""
        return (cls.NONE, cls.SUM, cls.SUM_OVER_BATCH_SIZE)
