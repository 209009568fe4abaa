"""The on-call page: from a glance to HTML that needs no script, and its way to the browser."""
