"""A whole cluster on a virtual clock: `rankpulse sim`."""
