"""Layers that turn text into numbers."""
