"""Names of `keras.optimizers`, for type checkers."""

from keras.optimizers import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
