"""Errors for names of TensorFlow that `stratagem.tf` does not have: they say what to write instead."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Final

from stratagem.core.errors import explain
from stratagem.tf.repairs import INSTEAD

DEFAULT: Final = "See `stratagem help tensorflow` for the names that exist."
"""The repair where none is known."""

_SURELY: Final = 0.91
_PERHAPS: Final = 0.75
"""Similarity, from 0 to 1, above which one name is taken for a misspelling of the other."""

_PLACES: Final = ("", ".math", ".linalg", ".random", ".nn", ".strings", ".image", ".debugging", ".compat.v1")
"""Namespaces to search for a name that is missing in another."""

_LIKE: Final = ("keras.ops", "jax.numpy", "jax.nn", "jax.scipy.special", "jax.numpy.linalg", "jax.lax", "keras")
"""Modules in which a function of the same name mostly does the same."""


def missing(name: str, known: Iterable[str] = ()) -> AttributeError:
    """Return the error for a name that `stratagem.tf` does not have.

    Args:
        name: The name as a program writes it: `tf.while_loop`.
        known: The names that the same module has.

    Example:
        >>> print(missing("tf.Session"))
        tf.Session is not in stratagem.tf.
        ...
    """
    return AttributeError(explain(f"{name} is not in stratagem.tf.", repair(name, known)))


def repair(name: str, known: Iterable[str] = ()) -> str:
    """Return what to write in place of a name that `stratagem.tf` does not have.

    Args:
        name: The name as a program writes it.
        known: The names that the same module has.

    Example:
        >>> repair("tf.log"), repair("tf.compat.v1.assert_near")
        ('Write tf.math.log.', 'Write tf.debugging.assert_near.')
        >>> repair("tf.data.Datset", ["Dataset", "Options"])
        'Did you mean tf.data.Dataset?'
    """
    parts = name.replace("tf.compat.v1.", "tf.").replace("tf.compat.v2.", "tf.").split(".")
    module, leaf = name.rpartition(".")[::2]
    if name in INSTEAD:
        return INSTEAD[name]
    if misspelt := difflib.get_close_matches(leaf, known, n=1, cutoff=_SURELY):
        return f"Did you mean {module}.{misspelt[0]}?"
    for length in range(len(parts), 1, -1):  # the name itself, then what it lies in
        if (area := ".".join(parts[:length])) in INSTEAD:
            return INSTEAD[area]
    for place in _PLACES:
        if leaf != "experimental" and leaf in dir(importlib.import_module(f"stratagem.tf{place}")):
            return f"Write tf{place}.{leaf}."
    for other in _LIKE if leaf[:1].islower() or "keras" in parts else ():
        if leaf in dir(importlib.import_module(other)):
            return f"Write {other}.{leaf}: {'Keras' if other.startswith('keras') else 'JAX'} has it by this name."
    if close := difflib.get_close_matches(leaf, known, n=1, cutoff=_PERHAPS):
        return f"Did you mean {module}.{close[0]}?"
    return DEFAULT
