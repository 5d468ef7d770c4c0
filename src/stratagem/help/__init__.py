"""`stratagem help`: the guides, in the terminal. Never imports jax or keras."""
