"""Evidence that a ``.tinygpt`` file can be trusted: killed trainers, damaged files, resumed runs."""
