"""The store: one protocol, etcd v3 behind it, and the same in memory on an injected clock."""

import os

# Before grpc is first imported: its C core writes to stderr by itself (we report errors in words of our own), and its
# own resolver knows neither /etc/hosts nor nsswitch.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
