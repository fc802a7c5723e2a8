#!/usr/bin/env bash
# Concern: LNet over EFA with the planned number of interfaces, before the file system is mounted.
# Amazon FSx for Lustre User Guide, "Configuring EFA clients": the same modules, nets, peer credits and policy as AWS's
# configure-efa-fsx-lustre-client. That script is a download at boot; this one needs no internet.
# Each interface is one of the 1,024 EFA connections of a file system, so neither more nor fewer than planned.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
if ((EFA_INTERFACES == 0)); then
  log "no EFA for Lustre on this node"
  exit 0
fi

efa_devices() {
  local device driver
  for device in "${KIT_ROOT}"/sys/class/infiniband/*; do
    if [[ -e "${device}/device/driver" ]]; then
      driver="$(realpath "${device}/device/driver")"
      if [[ "${driver##*/}" == efa ]]; then printf '%s\n' "${device##*/}"; fi
    fi
  done | sort --version-sort
}

devices=()
read_lines devices efa_devices
if ((${#devices[@]} < EFA_INTERFACES)); then
  fail "the plan has ${EFA_INTERFACES} EFA interfaces for Lustre, this node has ${#devices[@]} EFA devices"
fi

# Spread over the devices, because neighbours share a PCIe switch: every 4th of 32 as AWS does, first and last for two.
wanted=()
for ((index = 0; index < EFA_INTERFACES; index++)); do
  wanted+=("${devices[index * ${#devices[@]} / EFA_INTERFACES]}")
done
if ((EFA_INTERFACES == 2)); then wanted[1]="${devices[-1]}"; fi

tcp="$(ip -4 -oneline route show default | awk '{ for (i = 1; i < NF; i++) if ($i == "dev" && !seen++) print $(i + 1) }')"
[[ -n "$tcp" ]] || fail "no default route, so no interface for Lustre over TCP"

modprobe lnet
modprobe kefalnd "ipif_name=${tcp}"
modprobe ksocklnd
lnetctl lnet configure

have=()
read_lines have lnet_interfaces efa
have_tcp="$(lnet_interfaces tcp)"
sorted() { printf '%s\n' "$@" | sort; }
if [[ "$(sorted "${have[@]}")" == "$(sorted "${wanted[@]}")" && "$have_tcp" == "$tcp" ]]; then
  log "already configured: tcp on ${tcp}, efa on ${wanted[*]}"
else
  if mounted "$LUSTRE_PATH" >/dev/null; then
    fail "LNet has tcp on ${have_tcp:-nothing} and efa on ${have[*]:-nothing}, wanted: ${tcp} and ${wanted[*]};" \
      "unmount ${LUSTRE_PATH} first"
  fi
  if [[ "$have_tcp" != "$tcp" ]]; then
    if [[ -n "$have_tcp" ]]; then lnetctl net del --net tcp; fi
    lnetctl net add --net tcp --if "$tcp"
  fi
  for interface in "${have[@]}"; do
    if [[ " ${wanted[*]} " != *" ${interface} "* ]]; then lnetctl net del --net efa --if "$interface"; fi
  done
  for interface in "${wanted[@]}"; do
    if [[ " ${have[*]} " != *" ${interface} "* ]]; then
      lnetctl net add --net efa --if "$interface" --peer-credits 32
    fi
  done
  log "configured: tcp on ${tcp}, efa on ${wanted[*]}"
fi
# Discovery finds the servers' EFA addresses behind the TCP ones that the file system publishes; the policy prefers them.
lnetctl set discovery 1
policies="$(lnetctl udsp show)"
if [[ "$policies" != *efa* ]]; then lnetctl udsp add --src efa --priority 0; fi
modprobe lustre
