"""Who froze the job: simulated hangs of whole trainings, and which rules name the culprit. `rankpulse bench hang`."""
