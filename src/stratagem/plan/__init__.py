"""How a model would train on more workers: `stratagem plan`."""
