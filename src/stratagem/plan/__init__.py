"""`stratagem plan`: a prediction of how a model would train on more workers."""
