"""Names of `keras.export`, for type checkers."""

from keras.export import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
