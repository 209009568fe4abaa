"""Live hangs: a small job in which a rank drawn by lot fails in one of many ways, and what rankpulse says of it."""
