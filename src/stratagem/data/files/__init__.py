"""Datasets of files, one module for each format."""
