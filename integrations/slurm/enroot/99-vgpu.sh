#!/bin/bash
# 99-vgpu.sh - for /etc/enroot/hooks.d: gives a container of enroot (or pyxis) the slice of the step that starts it. Runs
# after 98-nvidia.sh, outside the container, with the step's environment. Not tried with a real enroot.
#
# What the variables of the slice name is mounted at the same places, so that they hold inside, too.
set -euo pipefail
[ -n "${VGPU_SOCKET:-}" ] || exit 0

mount() { # PATH file|dir
  [ -e "$1" ] && printf '%s %s none x-create=%s,bind,ro,nosuid,nodev,rslave\n' "$1" "$1" "$2" >>"$ENROOT_MOUNTS"
  return 0
}

mount "$(dirname "$VGPU_SOCKET")" dir
shims=$(printf '%s' "${LD_PRELOAD:-}" | tr ': ' '\n\n' | grep -e '/libvgpu[^/]*$' -e '/SIMULATED/[^/]*$' || true)
for library in $shims; do
  mount "$library" file
done
[ -n "${VGPU_DRIVER:-}" ] && mount "$VGPU_DRIVER" file
[ -n "${VGPU_NVML:-}" ] && mount "$VGPU_NVML" file
if [ -n "${VGPU_SIM_DIR:-}" ]; then
  mount "$VGPU_SIM_DIR" dir
  mount "$(dirname "$VGPU_DRIVER")" dir
fi
for name in VGPU_SOCKET VGPU_DRIVER VGPU_NVML VGPU_MODE VGPU_SIM_DIR CUDA_VISIBLE_DEVICES; do
  [ -n "${!name:-}" ] && printf '%s=%s\n' "$name" "${!name}" >>"$ENROOT_ENVIRON"
done
# only those: what else the step preloads is not in the image
printf 'LD_PRELOAD=%s\n' "$(printf '%s' "$shims" | paste -sd:)" >>"$ENROOT_ENVIRON"
exit 0
