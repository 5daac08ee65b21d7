"""`python -m everstep`, where the command `everstep` is not on the path."""

from everstep.cli.main import main

main()
