"""Thousands of real publishers in one process, against a real etcd and a real monitor: `rankpulse swarm`."""
