"""The `rankpulse` command: the one place that knows every room."""
