"""Command line: parses, calls ``api``, prints a ``report``."""


def main() -> int:
    """The ``tilesight`` command; the exit status."""
    from tilesight.cli.program import main as run

    return run()


__all__ = ["main"]
