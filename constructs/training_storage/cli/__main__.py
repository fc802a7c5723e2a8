"""``python -m training_storage.cli``."""

import sys

from training_storage.cli import main

sys.exit(main())
