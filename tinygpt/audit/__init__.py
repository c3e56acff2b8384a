"""Other people's models under checkpointing: theirs and ours."""
