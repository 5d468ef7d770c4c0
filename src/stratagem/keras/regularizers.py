"""Names of `keras.regularizers`, for type checkers."""

from keras.regularizers import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
