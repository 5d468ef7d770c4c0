"""Names of `keras.distribution`, for type checkers."""

from keras.distribution import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
