"""Changes to the program of a step before XLA compiles it, one module each."""
