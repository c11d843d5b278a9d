#!/bin/bash
# publish_memory.sh: writes into this node's comment in Slurm how much memory each of its GPUs has, as vgpud knows it, the
# least where they differ (`vgpu memory=BYTES`), for the reasons of `vgpu cluster ls`. Run as root on the node when vgpud has
# started, as by vgpu-publish-memory.service; not by vgpud.service itself, whose start would take as long as a slurmctld that
# does not answer. A comment of the site's own stays.
export LC_ALL=C # bytes, as sinfo counts them
columns=1024
node=${SLURMD_NODENAME:-$(hostname -s)}
least=$(vgpu gpu ls -o json | sed -n 's/.*"mem_total_bytes": *\([0-9]*\).*/\1/p' | sort -n | head -n 1)
if [ -z "$least" ]; then
  echo "publish_memory.sh: vgpud has named no GPU of this node: see vgpu gpu ls" >&2
  exit 1
fi
if ! shown=$(timeout 10 sinfo --noheader --all --Node --nodes="$node" -O "Comment:$columns") || [ -z "$shown" ]; then
  echo "publish_memory.sh: sinfo does not say which comment node $node has in Slurm: run this again when it does" >&2
  exit 1
fi
# the node is shown once for each of its partitions
before=${shown:0:columns}
before=${before%"${before##*[![:space:]]}"}
case $before in
  "" | "(null)") rest= ;;
  "vgpu memory="*)
    rest=${before#vgpu memory=}
    rest=${rest#"${rest%%[!0-9]*}"}
    ;;
  *)
    echo "publish_memory.sh: node $node has another comment in Slurm: begin it with \"vgpu memory=$least\"" >&2
    exit 1
    ;;
esac
exec timeout 10 scontrol update "NodeName=$node" "Comment=vgpu memory=$least$rest"
