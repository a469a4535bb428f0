"""What is beside the package in the checkout can be imported, behind what is installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
