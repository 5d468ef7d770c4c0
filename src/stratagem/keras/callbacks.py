"""Names of `keras.callbacks`, for type checkers."""

from keras.callbacks import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
