"""The door of our HTTP ports: who may come in, over TLS or not, and how often."""
