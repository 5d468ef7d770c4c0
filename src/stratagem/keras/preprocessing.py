"""Names of `keras.preprocessing`, for type checkers."""

from keras.preprocessing import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
