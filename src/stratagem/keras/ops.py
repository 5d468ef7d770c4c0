"""Names of `keras.ops`, for type checkers."""

from keras.ops import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
