"""Words and values that every layer shares. Imports neither jax nor keras."""
