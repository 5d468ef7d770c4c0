"""The seam into Keras: `fit`, `evaluate` and `predict` of a model that belongs to a strategy."""
