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
# " Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:600(...)" for each node, or for several that are alike. The job's name and comment
# are of its user and may look the same: of all the least counts, so they can only make the slice smaller. Made of that are
# lines "COUNT NODES,NODES,...", the least first and one for each count, so that Slurm is asked a few times for names of
# nodes, whatever is in the comment. 0 is a form that is not understood, WHOLE a GPU without shards.
WHOLE=9999999
counts=$(timeout 5 scontrol -o show job -d "$SLURM_JOB_ID" 2>/dev/null | awk -v node="${SLURMD_NODENAME:-}" -v whole=$WHOLE '
  function note(nodes, gres,  count) {
    if (nodes != node && nodes !~ /[[,]/) return
    # of another form than Slurm writes: it would be an option, or spoil the list that it is put into
    if (nodes !~ /^[A-Za-z0-9_]([A-Za-z0-9._,-]|\[[0-9,-]+\])*$/) return
    if (match(gres, /(^|,)shard(:[^:(,]*)?:[0-9]+/)) {
      count = substr(gres, RSTART, RLENGTH)
      sub(/.*:/, "", count)
      count = count + 0 < whole ? count + 0 : whole - 1
    } else if (gres ~ /shard/) count = 0
    else if (gres ~ /(^|,)gpu:/) count = whole
    else return
    if ((count, nodes) in seen) return
    seen[count, nodes] = 1
    lists[count] = lists[count] "," nodes
    if (++different > 1000) exit
  }
  { for (i = 1; i <= NF; i++)
      if ($i ~ /^Nodes=/) nodes = substr($i, 7)
      else if ($i ~ /^GRES=/ && nodes != "") note(nodes, substr($i, 6)) }
  END { if (different > 1000) exit
        for (count in lists) print count, substr(lists[count], 2) }' | sort -n)

# Whether a list has this node; another status where Slurm does not say, or not in time: then nothing is known.
has_node() {
  case ,$1, in *",$SLURMD_NODENAME,"*) return 0 ;; esac
  case $1 in *[[,]*) ;; *) return 1 ;; esac
  [ "$((SECONDS - began))" -lt 5 ] || return 2
  found=$(timeout 2 scontrol show hostnames "$1" 2>/dev/null | grep -cxF "$SLURMD_NODENAME"; exit "${PIPESTATUS[0]}") || return 2
  [ "$found" != 0 ]
}

shards=
is_known=
began=$SECONDS
while [ -n "${SLURMD_NODENAME:-}" ] && read -r count nodes; do
  has_node "$nodes"
  case $? in
  0) is_known=1 shards=$count && break ;;
  1) ;;
  *) break ;;
  esac
done <<<"$counts"
[ "$shards" != $WHOLE ] || shards=
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
