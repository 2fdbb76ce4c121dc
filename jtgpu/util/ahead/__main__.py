"""``python -m jtgpu.util.ahead``."""

import sys

from .build import main

if __name__ == "__main__":
    sys.exit(main())
