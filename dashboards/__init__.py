"""Grafana dashboards, recording and alert rules, made from the metrics catalogue; outputs are committed."""
