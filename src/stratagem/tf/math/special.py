"""`tf.math.special`: functions of Bessel and others; those of them that JAX has."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    name: f"stratagem.tf.tensors.elementwise:{name}"
    for name in ("bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "expint", "spence")
}
"""The module and the attribute of each name."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
