"""Programs: the compiled steps of a model function, one for each mode, with their variables and checkpoints."""
