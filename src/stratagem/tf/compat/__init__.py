"""`tf.compat`: text as bytes and back, and `v1`, as far as Estimator programs use it."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "v1": "stratagem.tf.compat.v1",
    "v2": "stratagem.tf",
    **{
        name: f"stratagem.tf.compat.text:{name}"
        for name in (
            "as_bytes",
            "as_str",
            "as_str_any",
            "as_text",
            "bytes_or_text_types",
            "complex_types",
            "dimension_at_index",
            "dimension_value",
            "integral_types",
            "path_to_str",
            "real_types",
        )
    },
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
