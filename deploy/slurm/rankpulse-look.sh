#!/bin/sh
# Prolog and Epilog of Slurm (slurm.conf: Prolog=, Epilog=, PrologFlags=Alloc, so that it runs before the batch script):
# a node is drained, and the job goes elsewhere, where `rankpulse preflight` finds a GPU or the checkpoint directory
# broken. A store that is down, an agent or a rankpulse that is not there, or a look that takes too long drain nobody:
# what is not known is not broken.
#
# RANKPULSE names the program, RANKPULSE_LOOK_S the seconds it may take; set them in a wrapper.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
rankpulse=${RANKPULSE:-/opt/rankpulse/bin/rankpulse}
[ -x "$rankpulse" ] || exit 0
found=$(timeout -k 5 "${RANKPULSE_LOOK_S:-60}" "$rankpulse" preflight --json 2>/dev/null)
[ $? -eq 1 ] || exit 0
bad=$(printf '%s\n' "$found" | awk '
  function value(line) { sub(/^ *"[a-z]+": "/, "", line); sub(/",?$/, "", line); return line }
  /^ *"check": / { check = value($0) }
  /^ *"level": / { level = value($0) }
  /^ *"text": / { text = value($0) }
  /^ *}/ { if (level == "fail" && (check ~ /^gpu/ || check == "checkpoint directory" || check == "collective"))
             print check ": " text }')
[ -n "$bad" ] || exit 0
echo "rankpulse: $bad" >&2
logger -t rankpulse "job ${SLURM_JOB_ID:-?}: this node is refused: $bad" 2>/dev/null
exit 1
