"""`stratagem migrate`: what becomes of a program of TensorFlow, and its new text."""
