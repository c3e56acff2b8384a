"""The GPT on MLX. It knows nothing of checkpointing: whoever runs it may wrap its blocks."""

from tinygpt.model.attention import Attention
from tinygpt.model.block import Block
from tinygpt.model.feed_forward import FeedForward, Losses
from tinygpt.model.gpt import GPT, next_token_loss, training_loss

__all__ = ["GPT", "Attention", "Block", "FeedForward", "Losses", "next_token_loss", "training_loss"]
