"""`stratagem run`: start the tasks of a cluster. Never imports jax or keras, so that it starts at once."""
