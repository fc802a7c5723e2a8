#!/usr/bin/env bash
# There is a Lustre client for this kernel, not older than the file system.
# Needs: contract kernel
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
[[ -n "$LUSTRE_PATH" ]] || exit 3
kernel="$(uname --kernel-release)"
if ! modinfo --set-version "$kernel" --field version lustre >/dev/null 2>&1; then
  printf 'no Lustre module for kernel %s on %s\n' "$kernel" "$(distribution)"
  exit 1
fi
# "2.15.6", or "lustre: 2.12.8" of older clients.
if ! version="$(lctl get_param -n version)"; then
  printf 'the Lustre modules are not loaded\n'
  exit 1
fi
version="${version%%$'\n'*}"
version="${version##* }"
wanted="$TRAINING_STORAGE_LUSTRE_VERSION"
if ! printf '%s\n' "$wanted" "$version" | sort --version-sort --check=quiet; then
  printf 'the Lustre client is %s, the file system is %s: older clients miss what the plan relies on\n' "$version" "$wanted"
  exit 1
fi
printf 'client %s, file system %s\n' "$version" "$wanted"
