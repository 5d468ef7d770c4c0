"""Names of `keras.saving`, for type checkers."""

from keras.saving import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
