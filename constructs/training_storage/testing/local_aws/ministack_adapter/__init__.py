"""The only package that imports ministack; names.py lists every name it reaches for."""
