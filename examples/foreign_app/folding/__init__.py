"""The platform that a research group trains on: an app of its own that gets its storage from a library."""
