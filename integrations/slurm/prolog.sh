#!/bin/bash
# Prolog= of slurm.conf, where the SPANK plugin cannot be built: asks the node's vgpud for the job's slice and leaves the
# variables of its tasks for task_prolog.sh. Run by slurmd as root, once for a job on each of its nodes.
#
# Always exits with 0: another status would drain the node. The tasks of a job without its slice are ended by task_prolog.sh.
# A site's own settings are in scripts.conf beside this file: shell lines HELPER=PATH, STATE=FOLDER.
HELPER=/usr/lib/vgpu/current/vgpu-runtime
STATE=/run/vgpud-slurm
# shellcheck source=/dev/null
[ -r "${0%/*}/scripts.conf" ] && . "${0%/*}/scripts.conf"
HELPER=${HELPER//%n/${SLURMD_NODENAME:-}}
STATE=${STATE//%n/${SLURMD_NODENAME:-}}

# Without a GPU there is nothing to do.
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0
umask 022
mkdir -p "$STATE" || exit 0
file=$STATE/$SLURM_JOB_ID
rm -f "$file.env" "$file.refused"

# Prolog gets the devices and not the number of shards: slurmctld is asked, once for a job.
details=$(timeout 5 scontrol -o show job -d "$SLURM_JOB_ID" 2>/dev/null)
shards=
# " Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:600(...)" for each node, or for several that are alike
while read -r nodes gres; do
  case $nodes in
  "${SLURMD_NODENAME:-}") ;;
  *[[,]*) scontrol show hostnames "$nodes" | grep -qxF "${SLURMD_NODENAME:-}" || continue ;;
  *) continue ;;
  esac
  [[ $gres =~ (^|,)shard(:[^:\(,]*)?:([0-9]+) ]] && shards=${BASH_REMATCH[3]}
done < <(printf '%s\n' "$details" | awk '{ for (i = 1; i <= NF; i++)
  if ($i ~ /^Nodes=/) nodes = substr($i, 7)
  else if ($i ~ /^GRES=/ && nodes != "") print nodes, substr($i, 6) }')
# A job with shards whose number is not known must not get the whole device.
if [ -z "$details" ] || [[ -z $shards && $details == *shard* ]]; then
  echo "vgpu: slurmctld did not say what job $SLURM_JOB_ID has: the job gets no GPU, submit it again" >"$file.refused"
  exit 0
fi

if timeout 12 "$HELPER" vgpu-slurm begin "job=$SLURM_JOB_ID" "uid=$SLURM_JOB_UID" "gpus=$SLURM_JOB_GPUS" \
  "shards=$shards" >"$file.new" 2>"$file.said"; then
  sed 's/^/export /' "$file.new" >"$file.env"
else
  { echo -n "vgpu: "; head -n 1 "$file.said"; } >"$file.refused"
fi
rm -f "$file.new" "$file.said"
exit 0
