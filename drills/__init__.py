"""Fault injectors and the runner behind `rankpulse demo`."""
