"""The command line: ``python train.py {fit,harvest,test} --config pocket.yaml``."""

import sys

from switchmem.cli import main

if __name__ == "__main__":
    sys.exit(main())
