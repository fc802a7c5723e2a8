#!/usr/bin/env bash
# Installs the kit and sets the storage up. Called by user data at an instance's first boot, and by hand after a repair;
# at later boots systemd does the rest. A second run changes nothing that is as it should be.
set -euo pipefail
kit="$(cd "${BASH_SOURCE[0]%/*}" && pwd)"
# shellcheck source=lib/common.sh
source "${kit}/lib/common.sh"
umask 022

usage="install.sh --parameter NAME --region REGION --job JOB --engine ENGINE --role compute|login --purchase PURCHASE
  [--capacity-reservations 'ID ID' --block-end-minutes MINUTES]"
parameter="" region="" job="" engine="" role="" purchase="" reservations="" block_end_minutes=""
while (($# > 0)); do
  (($# > 1)) || fail "$1 needs a value: ${usage}"
  case "$1" in
    --parameter) parameter="$2" ;;
    --region) region="$2" ;;
    --job) job="$2" ;;
    --engine) engine="$2" ;;
    --role) role="$2" ;;
    --purchase) purchase="$2" ;;
    --capacity-reservations) reservations="$2" ;;
    --block-end-minutes) block_end_minutes="$2" ;;
    *) fail "unknown option $1: ${usage}" ;;
  esac
  shift 2
done
for value in "$parameter" "$region" "$job" "$engine" "$role" "$purchase"; do
  [[ -n "$value" ]] || fail "an option is missing: ${usage}"
done
[[ "$role" == compute || "$role" == login ]] || fail "--role must be compute or login, got: ${role}"
[[ -e "${kit}/engines/${engine}.sh" ]] || fail "--engine must be one of $(cd "${kit}/engines" && printf '%s ' *.sh | sed 's/\.sh//g'), got: ${engine}"
if [[ "$purchase" == capacity-block ]]; then
  [[ -n "$reservations" ]] || fail "--capacity-reservations must name the Capacity Blocks: ${usage}"
  [[ "$block_end_minutes" =~ ^[1-9][0-9]*$ ]] ||
    fail "--block-end-minutes must be a whole number from 1, got: ${block_end_minutes}"
fi
for tool in aws python3 systemctl findmnt lsblk; do
  command -v "$tool" >/dev/null || fail "this image has no ${tool}, which the kit needs"
done

# copy FOLDER MODE TARGET: the files of a folder of the kit; what an older kit left in the target goes.
copy() {
  local file
  for file in "${kit}/$1"/*; do
    if [[ -f "$file" ]] && ! cmp --silent "$file" "$3/${file##*/}"; then
      # A new file takes the name: a script that runs goes on as it was.
      install -D --mode="$2" "$file" "$3/${file##*/}"
    fi
  done
  for file in "$3"/*; do
    if [[ -f "$file" && ! -e "${kit}/$1/${file##*/}" ]]; then rm "$file"; fi
  done
}

mkdir --parents "${KIT_ETC}/drain.d" "$KIT_RUN" "$KIT_STATE"
copy lib 0644 "${KIT_HOME}/lib"
copy engines 0644 "${KIT_HOME}/engines"
copy scripts 0755 "${KIT_HOME}/scripts"
copy checks 0755 "${KIT_HOME}/checks"
copy samples 0755 "${KIT_ROOT}/usr/local/share/training-storage"
put_file "${KIT_ROOT}/usr/local/bin/training-storage-ready" 0755 <"${kit}/scripts/ready.sh" >/dev/null
printf '%s=%q\n' KIT_PARAMETER "$parameter" KIT_REGION "$region" KIT_JOB "$job" KIT_ENGINE "$engine" \
  KIT_ROLE "$role" KIT_PURCHASE "$purchase" KIT_RESERVATIONS "$reservations" \
  KIT_BLOCK_END_MINUTES "$block_end_minutes" |
  put_file "${KIT_ETC}/kit.env" 0644 >/dev/null
# Whoever runs this says that the kernel is the right one.
uname --kernel-release | put_file "${KIT_STATE}/kernel" 0644 >/dev/null

units="${KIT_ROOT}/etc/systemd/system"
changed="$(
  for file in "${kit}"/systemd/*; do put_file "${units}/${file##*/}" 0644 <"$file"; done
  # Mountpoint's memory: 5 % of this node's, at least 2 GiB. Without a bound its memory grows with the open files.
  awk '/^MemTotal:/ { mib = int($2 / 1024 / 20); printf "[Service]\nMemoryMax=%dM\n", (mib > 2048 ? mib : 2048) }' \
    "${KIT_ROOT}/proc/meminfo" | put_file "${units}/training-storage-mountpoint.service.d/memory.conf" 0644
)"
if [[ -n "$changed" ]]; then systemctl daemon-reload; fi
systemctl enable --quiet training-storage.target
if [[ "$purchase" == capacity-block ]]; then
  systemctl enable --quiet --now training-storage-capacity-block.timer
fi
# Waits until every unit is done. What failed is in the checks' reasons, and in their units' journal.
systemctl start training-storage.target
"$BASH" "${KIT_HOME}/scripts/ready.sh" || fail "this node's storage is not ready: see above and docs/node-kit.md"
log "this node's storage is ready"
