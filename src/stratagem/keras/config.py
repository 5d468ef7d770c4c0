"""Names of `keras.config`, for type checkers."""

from keras.config import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
