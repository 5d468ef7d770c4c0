"""The internals of `Inspect`: whether replicas agree, where a NaN began, and steps that are run again."""
