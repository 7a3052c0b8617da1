"""`python -m gateway` is `sluicegate`."""

from gateway.cli.main import main

if __name__ == "__main__":
    main()
