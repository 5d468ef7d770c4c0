"""Names of `keras.initializers`, for type checkers."""

from keras.initializers import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
