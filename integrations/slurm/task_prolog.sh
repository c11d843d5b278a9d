#!/bin/bash
# TaskProlog= of slurm.conf, beside prolog.sh: gives a task the variables of its job's slice. Run as the job's user before
# each task; lines that it prints, `export NAME=VALUE` and `print TEXT`, go to slurmstepd. A program that takes the
# variables out of its environment uses the device outside vgpud, which vgpud detects (docs/security/slurm.md).
STATE=/run/vgpud-slurm
# shellcheck source=/dev/null
[ -r "${0%/*}/scripts.conf" ] && . "${0%/*}/scripts.conf"
STATE=${STATE//%n/${SLURMD_NODENAME:-}}

without_simulated() { # LIST: what an outer `vgpu sim run` has put there is not for a slice
  printf '%s' "$1" | tr ': ' '\n\n' | grep -v /SIMULATED/ | paste -sd: || true
}

file=$STATE/$SLURM_JOB_ID
if [ -r "$file.env" ]; then
  while IFS= read -r line; do
    # what is loaded already, or searched already, stays behind ours
    case $line in
    "export LD_PRELOAD="*) others=$(without_simulated "${LD_PRELOAD:-}") ;;
    "export LD_LIBRARY_PATH="*) others=$(without_simulated "${LD_LIBRARY_PATH:-}") ;;
    *) others= ;;
    esac
    printf '%s\n' "$line${others:+:$others}"
  done <"$file.env"
  exit 0
elif [ -r "$file.refused" ]; then
  printf 'print %s\n' "$(cat "$file.refused")"
  exit 1 # ends the task, and the node stays as it is
fi
# A batch script may have inherited SLURM_STEP_GPUS from where it was submitted, Slurm sets or removes the other one.
gpus=${SLURM_STEP_GPUS:-}
[ "${ENVIRONMENT:-}" != BATCH ] || gpus=${SLURM_JOB_GPUS:-}
if [ -n "$gpus" ]; then
  printf 'print vgpu: Prolog has made no slice for job %s: see the log of slurmd\n' "$SLURM_JOB_ID"
  exit 1 # it would have the whole device
fi
exit 0
