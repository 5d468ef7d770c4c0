"""What is sent: the variables of the tutorials' MNIST network."""

from __future__ import annotations

import math

SHAPES = ((3, 3, 1, 32), (32,), (26 * 26 * 32, 128), (128,), (128, 10), (10,))
"""Of its variables, float32."""

BYTES = 4 * sum(map(math.prod, SHAPES))
