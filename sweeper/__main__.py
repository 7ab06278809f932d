"""Makes ``python -m sweeper`` the same as the ``sweeper`` command."""

from sweeper.cli import main

main()
