#!/bin/bash
# publish_memory.sh: writes into this node's comment in Slurm how much memory each of its GPUs has, as vgpud knows it, the
# least where they differ (`vgpu memory=BYTES`), for the reasons of `vgpu cluster ls`. Run as root on the node when vgpud has
# started, for example by ExecStartPost=- of vgpud.service. A comment of the site's own
# stays.
node=${SLURMD_NODENAME:-$(hostname -s)}
least=$(vgpu gpu ls -o json | sed -n 's/.*"memory_total_bytes": *\([0-9]*\).*/\1/p' | sort -n | head -n 1)
if [ -z "$least" ]; then
  echo "publish_memory.sh: vgpud has named no GPU of this node: see vgpu gpu ls" >&2
  exit 1
fi
read -r before < <(sinfo --noheader --all --Node --nodes="$node" -O Comment:1024)
case $before in
  "" | "(null)") rest= ;;
  "vgpu memory="*) rest=$(sed 's/^vgpu memory=[0-9]*//' <<<"$before") ;;
  *)
    echo "publish_memory.sh: node $node has another comment in Slurm: begin it with \"vgpu memory=$least\"" >&2
    exit 1
    ;;
esac
exec scontrol update "NodeName=$node" "Comment=vgpu memory=$least$rest"
