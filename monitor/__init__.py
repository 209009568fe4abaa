"""The coordinator: election, loop, executor, metrics, HTTP."""
