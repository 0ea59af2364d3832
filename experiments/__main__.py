"""Run the paper's experiments: `python -m experiments --help`."""

from experiments.command import main

main()
