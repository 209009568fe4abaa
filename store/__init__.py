"""The store: one protocol, etcd v3 behind it, and the same in memory on an injected clock."""
