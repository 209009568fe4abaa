"""Texts from elsewhere, made fit for a line of ours: nobody forges a log line or moves a cursor with a file name."""


def printable(text: object, limit: int = 300) -> str:
    """`text` with everything unprintable escaped, at most `limit` characters."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text)[:limit])
    return shown[:limit]
