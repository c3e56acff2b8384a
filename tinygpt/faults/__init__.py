"""Wrappers that are wrong on purpose, each in one way. A check that none of them fails could not fail at all."""
