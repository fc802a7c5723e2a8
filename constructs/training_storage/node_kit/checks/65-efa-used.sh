#!/usr/bin/env bash
# Data goes over EFA: a client that cannot use it falls back to TCP without a word. Moves data, so at boot only.
# Needs: contract kernel lustre-client efa-interfaces mounted writable free-space
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
((EFA_INTERFACES > 0)) || exit 3
[[ -z "${KIT_QUICK:-}" ]] || exit 3
mebibytes=64
least=$((mebibytes / 4)) # messages, if one request carries 4 MiB, which is Lustre's largest
file="${KIT_ROOT}${LUSTRE_PATH}/.training-storage-check.$(hostname --short)"

# Sent and received messages of a net: LNet counts them for each interface.
messages() {
  lnetctl net show --verbose | awk -v net="$1" '
    /net type:/ { inside = ($NF == net) }
    inside && /^ +(send|recv)_count:/ { sum += $2 }
    END { print sum + 0 }'
}

efa="$(messages efa)"
tcp="$(messages tcp)"
trap 'rm --force "$file"' EXIT
# Past the page cache, so that it is the network that moves the data.
if ! timeout --kill-after=5 120 dd if=/dev/zero of="$file" bs=4M count=$((mebibytes / 4)) oflag=direct status=none ||
  ! timeout --kill-after=5 120 dd if="$file" of=/dev/null bs=4M iflag=direct status=none; then
  printf '%s MiB could not be written to %s and read within 2 minutes each\n' "$mebibytes" "$LUSTRE_PATH"
  exit 1
fi
efa=$(($(messages efa) - efa))
tcp=$(($(messages tcp) - tcp))
if ((efa < least || efa < tcp)); then
  printf '%s MiB written and read moved %s messages over EFA and %s over TCP: the data does not use EFA\n' \
    "$mebibytes" "$efa" "$tcp"
  exit 1
fi
printf '%s messages over EFA, %s over TCP\n' "$efa" "$tcp"
