"""Estimators that come with a model. Models, defaults and names of variables are those of TensorFlow 2."""
