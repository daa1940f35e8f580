"""The command line: ``python train.py {fit,harvest,test} --config pocket.yaml``."""

import sys

if __name__ == "__main__":
    from switchmem.cli import main  # not above: worker processes import this file, and need none of it

    sys.exit(main())
