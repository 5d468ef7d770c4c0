"""The strategies: thin policies that choose devices and workers; the work is done below."""
