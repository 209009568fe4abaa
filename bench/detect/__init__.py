"""How good detection is: this detector and the usual alternatives over the same traces. See `run.py`."""
