import stratagem.core.needs_jax  # noqa: F401 - before Keras
