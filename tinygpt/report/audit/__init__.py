"""Audits of other people's models, to be read. Pure: dicts in, text out."""
