"""What `for x, y in dataset` yields."""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.data.structure import Tree, map_leaves


def eager(element: Tree) -> Tree:
    """Return `element` with `.numpy()` on its arrays."""
    return map_leaves(_eager, element)


def _eager(leaf: Any) -> EagerArray:
    return np.asarray(leaf, object if isinstance(leaf, bytes) else None).view(EagerArray)
