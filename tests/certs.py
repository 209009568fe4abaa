"""Certificates for tests. `from certs import Authority`."""

from rankpulse.drills.authority import Authority as Authority
