#!/usr/bin/env bash
# Data goes over EFA: a client that cannot use it falls back to TCP without a word.
# Needs: contract kernel lustre-client efa-interfaces mounted writable free-space
# Moves data: once a boot
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
((EFA_INTERFACES > 0)) || exit 3
mebibytes=64
least=$((mebibytes / 4)) # messages, if one request carries 4 MiB, which is Lustre's largest

# Sent and received messages of a net: LNet counts them for each interface.
messages() {
  lnetctl net show --verbose | awk -v net="$1" '
    /net type:/ { inside = ($NF == net) }
    inside && /^ +(send|recv)_count:/ { sum += $2 }
    END { print sum + 0 }'
}

efa="$(messages efa)"
tcp="$(messages tcp)"
# Past the page cache, so that it is the network that moves the data.
export mebibytes
# shellcheck disable=SC2016 # expanded by the inner shell
if ! python3 -I "${KIT_HOME}/lib/probe.py" \
  "${KIT_ROOT}${LUSTRE_PATH}" "${KIT_ROOT}${LUSTRE_PATH}" "${KIT_STATE}/probe-efa-used" \
  "$BASH" -euc '
    timeout --kill-after=5 120 dd if=/dev/zero of="$1" bs=4M count=$((mebibytes / 4)) \
      oflag=direct conv=notrunc status=none
    timeout --kill-after=5 120 dd if="$1" of=/dev/null bs=4M iflag=direct status=none
  ' efa-used; then
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
