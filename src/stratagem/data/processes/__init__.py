"""Processes that read and map elements for a dataset."""
