"""Compiling a step: which variables it touches, how it is compiled for the mesh, which program belongs to a call."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
