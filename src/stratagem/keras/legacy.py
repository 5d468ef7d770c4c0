"""Names of `keras.legacy`, for type checkers."""

from keras.legacy import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
