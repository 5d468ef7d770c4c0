"""`tf.debugging`: assertions."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "Assert": "stratagem.tf.tensors.checks:Assert",
    "assert_all_finite": "stratagem.tf.tensors.checks:assert_all_finite",
    "assert_equal": "stratagem.tf.tensors.checks:assert_equal",
    "assert_greater": "stratagem.tf.tensors.checks:assert_greater",
    "assert_greater_equal": "stratagem.tf.tensors.checks:assert_greater_equal",
    "assert_less": "stratagem.tf.tensors.checks:assert_less",
    "assert_less_equal": "stratagem.tf.tensors.checks:assert_less_equal",
    "assert_near": "stratagem.tf.tensors.checks:assert_near",
    "assert_negative": "stratagem.tf.tensors.checks:assert_negative",
    "assert_non_negative": "stratagem.tf.tensors.checks:assert_non_negative",
    "assert_non_positive": "stratagem.tf.tensors.checks:assert_non_positive",
    "assert_none_equal": "stratagem.tf.tensors.checks:assert_none_equal",
    "assert_positive": "stratagem.tf.tensors.checks:assert_positive",
    "assert_rank": "stratagem.tf.tensors.checks:assert_rank",
    "assert_rank_at_least": "stratagem.tf.tensors.checks:assert_rank_at_least",
    "assert_rank_in": "stratagem.tf.tensors.checks:assert_rank_in",
    "assert_scalar": "stratagem.tf.tensors.checks:assert_scalar",
    "assert_shapes": "stratagem.tf.tensors.checks:assert_shapes",
    "assert_type": "stratagem.tf.tensors.checks:assert_type",
    "check_numerics": "stratagem.tf.tensors.checks:check_numerics",
    "disable_check_numerics": "stratagem.tf.tensors.checks:disable_check_numerics",
    "enable_check_numerics": "stratagem.tf.tensors.checks:enable_check_numerics",
    "is_numeric_tensor": "stratagem.tf.tensors.checks:is_numeric_tensor",
    "set_log_device_placement": "stratagem.tf.tensors.checks:set_log_device_placement",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
