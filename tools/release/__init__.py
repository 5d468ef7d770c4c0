"""Build and check what is published of a release; nothing is uploaded."""
