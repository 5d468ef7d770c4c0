"""Names of `keras.distillation`, for type checkers."""

from keras.distillation import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
