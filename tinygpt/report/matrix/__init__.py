"""Rule by subject by release by backend: one table of everything that was judged."""
