"""``python -m clustersim``."""

from __future__ import annotations

from clustersim.cli.main import main

if __name__ == "__main__":
    main()
