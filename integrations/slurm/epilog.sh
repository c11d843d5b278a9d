#!/bin/bash
# Epilog= of slurm.conf: ends the slice of a job that prolog.sh has made. Run by slurmd as root when the job has ended on
# this node. With the SPANK plugin nothing is left to do, and it does no harm.
#
# Always exits with 0: another status would drain the node.
HELPER=/usr/lib/vgpu/current/vgpu-runtime
STATE=/run/vgpud-slurm
# shellcheck source=/dev/null
[ -r "${0%/*}/scripts.conf" ] && . "${0%/*}/scripts.conf"
HELPER=${HELPER//%n/${SLURMD_NODENAME:-}}
STATE=${STATE//%n/${SLURMD_NODENAME:-}}

file=$STATE/$SLURM_JOB_ID
[ -e "$file.env" ] || [ -e "$file.refused" ] || exit 0
timeout 5 "$HELPER" vgpu-slurm end "job=$SLURM_JOB_ID" >/dev/null 2>&1
rm -f "$file.env" "$file.refused"
exit 0
