"""`stratagem migrate`: findings about a program of TensorFlow, and its new text."""
