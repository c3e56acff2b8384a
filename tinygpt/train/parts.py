"""How the batch of a step is divided: among the ranks, and for each rank into parts that it does one after another."""

import dataclasses

from tinygpt.errors import ConfigError
from tinygpt.train_config import TrainConfig


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a batch that are one rank's.

    A part is what is in memory at once. Its rows, and the dropout masks in it, are a function of its number alone, so
    that the same batch may be divided among any number of ranks.

    Attributes:
        rank: Whose parts they are.
        ranks: How many ranks there are.
        accumulate: How many parts each has.
    """

    rank: int = 0
    ranks: int = 1
    accumulate: int = 1

    @property
    def total(self) -> int:
        """How many parts the batch has."""
        return self.ranks * self.accumulate

    @property
    def own(self) -> range:
        """The numbers of the rank's own."""
        return range(self.rank * self.accumulate, (self.rank + 1) * self.accumulate)

    def share(self, config: TrainConfig) -> TrainConfig:
        """Return a run that does alone what one rank does of another.

        Raises:
            ConfigError: The batch cannot be divided.
        """
        if config.batch % self.total:
            raise ConfigError(
                f"[train] batch: got {config.batch}, expected a multiple of {self.total}: {self.ranks} ranks, "
                f"{self.accumulate} parts each"
            )
        return dataclasses.replace(config, batch=config.batch // self.ranks)
