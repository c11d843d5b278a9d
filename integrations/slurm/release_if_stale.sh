#!/bin/sh
# Releases the jobs that wait for a controller of `vgpu cluster` that has gone: Slurm's own order continues.
# Called by vgpu-cluster-release.timer every minute, or as slurm.conf's EpilogSlurmctld. Needs no vgpu, and never fails:
# an EpilogSlurmctld that did would be noise in Slurm's log.
#
# usage: release_if_stale.sh [PARTITION [HEARTBEAT [SECONDS]]]
partition=${1:-gpu}
heartbeat=${2:-/run/vgpud/cluster/heartbeat}
stale_s=${3:-120}

beaten=$(cat "$heartbeat" 2>/dev/null)
case $beaten in
'' | *[!0-9]*) beaten=0 ;;
esac
[ $(($(date +%s) - beaten)) -gt "$stale_s" ] || exit 0

# Slurm's own programs are where the daemon is that runs this, and PATH need not say so.
daemon=$(readlink "/proc/$PPID/exe")
case $daemon in */sbin/slurm*) export PATH="${daemon%/sbin/*}/bin:$PATH" ;; esac
# what vgpu_cluster.lua holds is marked; what the controller held again says JobHeldAdmin
squeue --noheader --partition="$partition" --states=PENDING --array -O JobArrayID:40,Reason:40,admin_comment:40 2>/dev/null |
	while read -r job reason comment; do
		case $reason in
		JobHeldAdmin) ;;
		JobHeldUser) [ "${comment#vgpu:}" != "$comment" ] || continue ;;
		*) continue ;;
		esac
		scontrol update "JobId=$job" ReqNodeList= StartTime=now 2>/dev/null
		scontrol release "$job" 2>/dev/null
	done
exit 0
