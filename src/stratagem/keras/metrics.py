"""Names of `keras.metrics`, for type checkers."""

from keras.metrics import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
