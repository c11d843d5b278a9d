#!/bin/bash
# Epilog= of slurm.conf: ends the slice of a job that prolog.sh has made. Run by slurmd as root when the job has ended on
# this node. With the SPANK plugin nothing is left to do, and it does no harm. A slice that cannot be ended now, since vgpud
# is away, is noted (JOB.left) and ended by the next Epilog or Prolog.
#
# Always exits with 0: another status would drain the node.
HELPER=/usr/lib/vgpu/current/vgpu-runtime
STATE=/run/vgpud-slurm
# shellcheck source=/dev/null
[ -r "${0%/*}/scripts.conf" ] && . "${0%/*}/scripts.conf"
HELPER=${HELPER//%n/${SLURMD_NODENAME:-}}
STATE=${STATE//%n/${SLURMD_NODENAME:-}}

[ -d "$STATE" ] || exit 0
exec 9<"$STATE"
flock -w 10 9 # a Prolog that begins the same job again waits until its old slice has ended
file=$STATE/${SLURM_JOB_ID:-}
if [ -e "$file.env" ] || [ -e "$file.refused" ]; then
  : >"$file.left" && rm -f "$file.env" "$file.refused" "$file.new" "$file.said"
fi
for left in "$STATE"/*.left; do
  job=${left##*/}
  [ -e "$left" ] && [ $SECONDS -lt 15 ] || continue
  timeout 5 "$HELPER" vgpu-slurm end "job=${job%.left}" >/dev/null 2>&1 && rm -f "$left"
done
exit 0
