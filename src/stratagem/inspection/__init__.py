"""`Inspect` from the inside: whether replicas agree, where a NaN began, a step that is run again."""
