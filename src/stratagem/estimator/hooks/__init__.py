"""Hooks round the steps of an Estimator."""
