"""``python -m jtgpu.util.ahead [FOLDER]``."""

import sys

from .build import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
