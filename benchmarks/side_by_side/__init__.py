"""Sections of `make bench`: each measures us and our peers in turns, and hands over rows."""
