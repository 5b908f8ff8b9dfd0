"""The command line: `main` is what `bayesticket` runs.

Each command imports what it needs when it runs, so that `--help` answers at once.
"""
