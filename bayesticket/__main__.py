"""`python -m bayesticket`, the command line."""

from bayesticket.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
