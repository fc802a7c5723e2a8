"""Deployable compositions of the library."""
