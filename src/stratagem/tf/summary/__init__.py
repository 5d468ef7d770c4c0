"""`tf.summary`: event files for TensorBoard."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "experimental": "stratagem.tf.summary.experimental",
    **{
        name: f"stratagem.tf.summary.writer:{name}"
        for name in (
            "SummaryWriter",
            "create_file_writer",
            "create_noop_writer",
            "flush",
            "record_if",
            "should_record_summaries",
        )
    },
    **{name: f"stratagem.tf.summary.records:{name}" for name in ("audio", "histogram", "image", "scalar", "text")},
    **{name: f"stratagem.tf.summary.traces:{name}" for name in ("trace_export", "trace_off", "trace_on")},
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
