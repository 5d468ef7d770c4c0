"""Names of `keras.backend`, for type checkers."""

from keras.backend import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
