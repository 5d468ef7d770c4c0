"""Names of `keras.applications`, for type checkers."""

from keras.applications import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
