#!/usr/bin/env bash
# Concern: local scratch. RAID 0 over the instance-store NVMe devices, never EBS; a folder of the root volume without.
# Nothing that holds somebody's data is formatted: a device with an unknown signature ends the script.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
label=ts-scratch # of the file system, so that it is found again whatever name the array gets
target="${KIT_ROOT}${SCRATCH_PATH}"
mkdir --parents "$target" "$KIT_STATE"
devices=()
read_lines devices instance_store_devices

column() { lsblk --noheadings --raw --output "$1" "$2"; }
find_labelled() { blkid --label "$label"; }

# The folder itself belongs to every user, as /tmp does.
finish() {
  if [[ "$(stat --format %a "$target")" != 1777 ]]; then chmod 1777 "$target"; fi
  if [[ ! -e "${KIT_STATE}/nvme-devices" ]]; then printf '%s\n' "${#devices[@]}" >"${KIT_STATE}/nvme-devices"; fi
  exit 0
}

if ((${#devices[@]} == 0)); then
  log "no instance-store devices: ${SCRATCH_PATH} is a folder of the root volume"
  finish
fi
if mounted "$SCRATCH_PATH" >/dev/null; then
  log "${SCRATCH_PATH} is mounted"
  finish
fi

# AWS's deep learning images stripe the same devices by themselves (dlami-nvme.service, /opt/dlami/nvme): that is used.
other="$(column MOUNTPOINT "${devices[0]}" | awk 'NF && !seen++ { print $1 }')"
if [[ -n "$other" ]]; then
  mkdir --parents "${KIT_ROOT}${other}/training-storage"
  mount --bind "${KIT_ROOT}${other}/training-storage" "$target"
  log "${SCRATCH_PATH} is a folder of ${other}, where the image has put the instance-store devices"
  finish
fi

blank=() foreign=() members=0
for device in "${devices[@]}"; do
  kinds="$(column FSTYPE "$device" | awk 'NF' | sort --unique)"
  case "$kinds" in
    "") blank+=("$device") ;;
    *linux_raid_member*) members=$((members + 1)) ;;
    *) foreign+=("${device} (${kinds//$'\n'/, })") ;;
  esac
done
source_device="$(find_labelled)" || source_device=""
if [[ -z "$source_device" ]] && ((members > 0)); then
  mdadm --assemble --scan
  source_device="$(find_labelled)" || fail "the RAID on ${devices[*]} is not the kit's: no file system named ${label}"
fi
if [[ -z "$source_device" ]]; then
  if ((${#foreign[@]} > 0)); then
    fail "these instance-store devices hold something: ${foreign[*]}; wipe them (wipefs --all) or mount them"
  fi
  if ((${#blank[@]} == 1)); then
    source_device="${blank[0]}"
  else
    if ! command -v mdadm >/dev/null; then install_packages mdadm; fi
    source_device=/dev/md/training-storage
    mdadm --create "$source_device" --run --level=0 --name=training-storage \
      --raid-devices="${#blank[@]}" "${blank[@]}"
  fi
  # Without discarding: a new instance-store device is empty.
  if command -v mkfs.xfs >/dev/null; then
    mkfs.xfs -q -K -L "$label" "$source_device"
  else
    mkfs.ext4 -q -E nodiscard -L "$label" "$source_device"
  fi
fi
mount --options noatime "$source_device" "$target"
log "${SCRATCH_PATH} is ${source_device}, of ${#devices[@]} instance-store devices"
finish
