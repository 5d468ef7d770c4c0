"""Methods of `tf.data.Dataset` that datasets here lack, and what to write in their place."""

from __future__ import annotations

from typing import Final

from stratagem.core.errors import explain

_INSTEAD: Final = {
    "sparse_batch": "Write padded_batch: XLA compiles for known shapes.",
    "fingerprint": "Compare what stratagem.data.verify_sharding reports, or hash the elements.",
}


def absent(name: str) -> AttributeError:
    """Return the error for an attribute that a dataset does not have.

    Example:
        >>> print(absent("sparse_batch"))
        A dataset has no 'sparse_batch'.
        ...
    """
    return AttributeError(
        explain(
            f"A dataset has no {name!r}.", _INSTEAD.get(name, "See `stratagem help data` for what a dataset can do.")
        )
    )
