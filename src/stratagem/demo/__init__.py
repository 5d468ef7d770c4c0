"""`stratagem demo`: two workers train a network on handwritten digits, all of it inside the package."""
