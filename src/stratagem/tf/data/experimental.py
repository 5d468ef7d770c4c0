"""`tf.data.experimental`: options, and the functions that are methods of `Dataset` by now."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "AutotuneOptions": "stratagem.tf.data.options:AutotuneOptions",
    "OptimizationOptions": "stratagem.tf.data.options:OptimizationOptions",
    "TFRecordWriter": "stratagem.tf.data.older:TFRecordWriter",
    "ThreadingOptions": "stratagem.tf.data.options:ThreadingOptions",
    **{
        name: f"stratagem.tf.data.older:{name}"
        for name in (
            "assert_cardinality",
            "choose_from_datasets",
            "enumerate_dataset",
            "get_next_as_optional",
            "get_single_element",
            "get_structure",
            "map_and_batch",
            "parallel_interleave",
            "sample_from_datasets",
            "shuffle_and_repeat",
            "unbatch",
        )
    },
}
"""What is not in `stratagem.data.experimental`."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.data.experimental")
