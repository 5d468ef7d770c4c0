"""Names of `keras.quantizers`, for type checkers."""

from keras.quantizers import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
