"""Names of `keras.random`, for type checkers."""

from keras.random import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
