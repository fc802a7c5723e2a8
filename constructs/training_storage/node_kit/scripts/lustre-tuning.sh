#!/usr/bin/env bash
# Concern: client parameters, which do not outlive a mount. Amazon FSx for Lustre User Guide, "Performance tips",
# and nothing beyond it. The module options of the same page are set by lustre-client.sh, before the modules load.
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
cpus="$(nproc)"
memory_kib="$(awk '/^MemTotal:/ { print $2 }' "${KIT_ROOT}/proc/meminfo")"

# More than 64 GiB of memory: keep more locks, for longer.
if ((memory_kib > 64 * 1024 * 1024)); then
  lctl set_param "ldlm.namespaces.*.lru_max_age=600000" "ldlm.namespaces.*.lru_size=$((100 * cpus))"
fi
# More than 64 vCPUs: more requests under way.
if ((cpus > 64)); then
  lctl set_param "osc.*OST*.max_rpcs_in_flight=32" "mdc.*.max_rpcs_in_flight=64" "mdc.*.max_mod_rpcs_in_flight=50"
fi
# Listings of folders with many files.
lctl set_param "llite.*.statahead_max=512" "llite.*.statahead_agl=1"
if lctl get_param "llite.*.statahead_xattr" >/dev/null 2>&1; then
  lctl set_param "llite.*.statahead_xattr=1"
else
  log "this client has no statahead_xattr: a newer Lustre 2.15 client has"
fi
