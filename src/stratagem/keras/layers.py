"""Names of `keras.layers`, for type checkers."""

from keras.layers import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
