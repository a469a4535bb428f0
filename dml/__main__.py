"""`python -m dml`: the command line. Driver."""

from dml.cli import main

if __name__ == "__main__":
    main()
