"""Last words: a checkpoint that the survivors of a job write between the death of a rank and their own.

`offering` is what the manager has; the other modules are, from the inside out: what a moment is (`moment`, `layouts`),
whether updates may go on (`gate`), what ranks tell each other and decide (`words`, `judging`), through which files
(`meeting`, `participant`, `writing`), and who wakes them (`serving`, `terminated`).
"""
