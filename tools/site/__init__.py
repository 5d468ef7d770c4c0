"""Documentation site: `make docs` builds it from the Markdown pages, the examples and the docstrings."""
