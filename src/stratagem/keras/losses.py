"""Names of `keras.losses`, for type checkers."""

from keras.losses import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
