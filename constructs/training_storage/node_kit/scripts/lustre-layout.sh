#!/usr/bin/env bash
# Concern: the folders that training writes to, and how their files are striped.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
if [[ -z "$LUSTRE_PATH" ]]; then
  log "the contract has no file system"
  exit 0
fi
mounted "$LUSTRE_PATH" >/dev/null || fail "${LUSTRE_PATH} is not mounted"

# The layout that FSx gives new file systems since 2023-08-25 (User Guide, "Striping data in your file system"): one
# stripe up to 100 MiB, 8 up to 10 GiB, 16 up to 100 GiB, then 32. A large checkpoint file is then written by many
# servers. Set where it is missing, so that a file system with an older or changed default keeps the plan's promise.
stripes="1 8 16 32"
layout() {
  lfs getstripe --directory "$1" | awk '{
    for (i = 1; i < NF; i++) if ($i ~ /stripe_count:$/) { printf "%s%s", gap, $(i + 1); gap = " " }
  }'
}

while read -r folder; do
  [[ "$folder" == "$LUSTRE_PATH"/* ]] || continue
  path="${KIT_ROOT}${folder}"
  mkdir --parents "$path"
  # New folders are root's alone. They become every user's, as /tmp is; what an administrator has changed stays.
  if [[ "$(stat --format '%U %a' "$path")" == "$(id --user --name) 755" ]]; then chmod 1777 "$path"; fi
  if [[ "$(layout "$path")" != "$stripes" ]]; then
    lfs setstripe -E 100M -c 1 -E 10G -c 8 -E 100G -c 16 -E -1 -c 32 "$path"
    log "striped ${folder}"
  fi
done < <(writable_folders)
