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

file=$STATE/$SLURM_JOB_ID
rm -f "$file.env" "$file.refused"
# Without a GPU there is nothing to do.
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0
umask 022
mkdir -p "$STATE"
SLURM_JOB_ID='' "${0%/*}/epilog.sh" # slices of jobs that ended while vgpud was away
rm -f "$file.left"

# There until the job has its slice: without either file, or if it cannot be written, task_prolog.sh ends the tasks, too.
refuse() { echo "vgpu: $1" >"$file.refused"; }
refuse "Prolog was ended before job $SLURM_JOB_ID had its slice: submit it again" || exit 0

# Slurm's own programs are where the daemon is that runs this, and PATH need not say so.
daemon=$(readlink "/proc/$PPID/exe")
case $daemon in */sbin/slurm*) export PATH="${daemon%/sbin/*}/bin:$PATH" ;; esac
# Prolog gets the devices and not the number of shards: slurmctld is asked, once for a job.
details=$(timeout 5 scontrol -o show job -d "$SLURM_JOB_ID" 2>/dev/null)
shards=
is_known=
# " Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:600(...)" for each node, or for several that are alike. The job's name and comment
# are of its user and may look the same: of all the least counts, so they can only make the slice smaller.
while read -r nodes gres; do
  case $nodes in
  "${SLURMD_NODENAME:-}") ;;
  *[[,]*) timeout 5 scontrol show hostnames "$nodes" | grep -qxF "${SLURMD_NODENAME:-}" || continue ;;
  *) continue ;;
  esac
  if [[ $gres =~ (^|,)shard(:[^:\(,]*)?:([0-9]+) ]]; then
    count=$((10#${BASH_REMATCH[3]}))
    [[ -n $shards && $shards -le $count ]] || shards=$count
  elif [[ $gres == *shard* ]]; then
    shards=0 # of a form that is not understood
  elif [[ ! $gres =~ (^|,)gpu: ]]; then
    continue
  fi
  is_known=1
done < <(printf '%s\n' "$details" | awk '{ for (i = 1; i <= NF; i++)
  if ($i ~ /^Nodes=/) nodes = substr($i, 7)
  else if ($i ~ /^GRES=/ && nodes != "") print nodes, substr($i, 6) }')
# A job with shards whose number is not known must not get the whole device.
if [ -z "$is_known" ] || [ "$shards" = 0 ]; then
  refuse "slurmctld did not say what job $SLURM_JOB_ID has: the job gets no GPU, submit it again"
  exit 0
fi

if ! timeout 12 "$HELPER" vgpu-slurm begin "job=$SLURM_JOB_ID" "uid=$SLURM_JOB_UID" "gpus=$SLURM_JOB_GPUS" \
  "shards=$shards" >"$file.new" 2>"$file.said"; then
  refuse "$(head -n 1 "$file.said")"
elif sed -i 's/^/export /' "$file.new" && [ -s "$file.new" ]; then
  mv "$file.new" "$file.env" && rm -f "$file.refused"
fi
rm -f "$file.new" "$file.said"
exit 0
