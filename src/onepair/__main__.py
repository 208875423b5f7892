"""`python -m onepair`: the command, also for the processes that a run starts itself."""

from onepair.cli.main import main

if __name__ == "__main__":
    main()
