"""A parameter server: parts of variables, updates by Keras's optimizers, addresses of workers, requests."""
