"""Makes `from receiver_world import ...` work: tests are no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "monitor"))  # hook.py
