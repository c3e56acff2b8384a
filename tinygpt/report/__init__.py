"""Pages and tables from stored results: results in, text out, nothing is measured here."""
