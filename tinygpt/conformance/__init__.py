"""The judge. It never imports ``tinygpt.checkpointing``: it does not know the accused."""
