"""Let `python -m attnc` be the same as `attnc`."""

from attnc.cli import entry

if __name__ == "__main__":
    entry()
