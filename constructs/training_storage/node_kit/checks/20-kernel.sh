#!/usr/bin/env bash
# The kernel is the one that the Lustre client was installed for.
# Needs: contract
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
[[ -n "$LUSTRE_PATH" ]] || exit 3
now="$(uname --kernel-release)"
installed="$(<"${KIT_STATE}/kernel")"
if [[ "$now" != "$installed" ]]; then
  printf 'kernel %s runs, the Lustre client was installed for %s: the kernel was upgraded\n' "$now" "$installed"
  exit 1
fi
printf '%s\n' "$now"
