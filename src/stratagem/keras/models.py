"""Names of `keras.models`, for type checkers."""

from keras.models import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
