"""May we bump MLX? Two releases, one environment each, judged, raced and compared."""
