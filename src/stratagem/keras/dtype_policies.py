"""Names of `keras.dtype_policies`, for type checkers."""

from keras.dtype_policies import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
