"""`tf.keras.losses`: Keras's, and `Reduction`."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

SHORT: Final = {
    short: f"keras.losses:{name}"
    for name, shorts in {
        "kl_divergence": ("KLD", "kld", "kullback_leibler_divergence"),
        "log_cosh": ("logcosh",),
        "mean_absolute_error": ("MAE", "mae"),
        "mean_absolute_percentage_error": ("MAPE", "mape"),
        "mean_squared_error": ("MSE", "mse"),
        "mean_squared_logarithmic_error": ("MSLE", "msle"),
    }.items()
    for short in shorts
}
"""Short names of functions, which Keras 2 had among losses and metrics."""

_NAMES: Final = {
    **SHORT,
    "Reduction": "stratagem.tf.keras.reduction:Reduction",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.losses")
