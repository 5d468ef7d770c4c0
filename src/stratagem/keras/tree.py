"""Names of `keras.tree`, for type checkers."""

from keras.tree import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
