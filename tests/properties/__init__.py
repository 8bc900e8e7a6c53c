"""Properties of the whole analysis."""
