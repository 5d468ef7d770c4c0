"""Names of `keras.wrappers`, for type checkers."""

from keras.wrappers import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
