"""The webhook receiver: takes signed events, and starts jobs again through the scheduler that they run under."""
