"""The pytest plugin; light: it does not import MLX when it is loaded."""
