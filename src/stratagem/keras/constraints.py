"""Names of `keras.constraints`, for type checkers."""

from keras.constraints import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
