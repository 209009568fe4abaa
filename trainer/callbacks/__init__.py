"""For programs whose loop is somebody else's: Hugging Face's Trainer and Lightning. Each in a module of its own.

from rankpulse.trainer.callbacks.huggingface import RankpulseCallback
from rankpulse.trainer.callbacks.lightning import RankpulseCallback
"""
