#!/usr/bin/env bash
# Concern: the lake as a read-only folder, through Mountpoint for Amazon S3 with a bounded cache on scratch.
# The unit forks: mount-s3 returns when the mount stands, and its process stays in the unit, under MemoryMax.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
if [[ -z "$LAKE_PATH" ]]; then
  log "the contract has no lake to mount"
  exit 0
fi
version=1.23.0 # on Ubuntu; Amazon Linux has it in its own repository since 2023.9.20251110
target="${KIT_ROOT}${LAKE_PATH}"
cache="${KIT_ROOT}${CACHE_PATH}"

# Mountpoint guide, "Installing": the package from S3 with AWS's signature, checked against the documented keys.
install_deb() {
  local folder architecture base package
  folder="$(mktemp --directory)"
  architecture="$(uname --machine)"
  base="https://s3.amazonaws.com/mountpoint-s3-release"
  package="mount-s3-${version}-${architecture/aarch64/arm64}.deb"
  retry 4 2 30 curl --silent --show-error --fail --max-time 300 --remote-name-all --output-dir "$folder" \
    "${base}/${version}/${architecture/aarch64/arm64}/${package}"{,.asc} "${base}/public_keys/KEYS"
  GNUPGHOME="$folder" gpg --batch --quiet --import "${folder}/KEYS"
  local signature
  signature="$(GNUPGHOME="$folder" gpg --batch --status-fd 1 --verify "${folder}/${package}.asc" "${folder}/${package}")"
  # The fingerprint of the primary key is the last field.
  case "$signature" in
    *VALIDSIG*8AEFE705EBE329C0948C75A66F1C3B3AEF4B030B*) ;;
    *VALIDSIG*673FE4061506BB469A0EF857BE397A52B086DA5A*) ;;
    *) fail "${package} is not signed by Mountpoint's key" ;;
  esac
  install_packages "${folder}/${package}"
  rm --recursive "$folder"
}

if ! command -v mount-s3 >/dev/null; then
  case "$(distribution)" in
    ubuntu*) install_deb ;;
    *) install_packages mount-s3 ;;
  esac
fi
if kind="$(mounted "$LAKE_PATH")"; then
  # A dead Mountpoint leaves its folder mounted: "Transport endpoint is not connected".
  log "unmounting the ${kind} that an earlier run has left on ${LAKE_PATH}"
  umount --lazy "$target"
fi
mkdir --parents "$target" "$cache"
# A full old cache stops the mount after a reboot. The contract's reader has refused paths that are no folder of ours;
# still only what lies below scratch is deleted.
[[ "$CACHE_PATH" == "$SCRATCH_PATH"/?* ]] || fail "the cache ${CACHE_PATH} must be a folder below ${SCRATCH_PATH}"
find "$cache" -xdev -mindepth 1 -delete

options=(--read-only --allow-other --region "$TRAINING_STORAGE_REGION" --cache "$cache")
options+=(--max-cache-size "$((${TRAINING_STORAGE_MOUNTPOINT_CACHE_GIB%.*} * 1024))")
if [[ -n "${TRAINING_STORAGE_MOUNTPOINT_EXPRESS_CACHE_BUCKET:-}" ]]; then
  options+=(--cache-xz "$TRAINING_STORAGE_MOUNTPOINT_EXPRESS_CACHE_BUCKET")
fi
if [[ -n "${TRAINING_STORAGE_ENDPOINT_URL:-}" ]]; then options+=(--endpoint-url "$TRAINING_STORAGE_ENDPOINT_URL"); fi
if [[ "${TRAINING_STORAGE_ENDPOINT_ADDRESSING_STYLE:-auto}" == path ]]; then options+=(--force-path-style); fi
retry 6 2 30 mount-s3 "$TRAINING_STORAGE_MOUNTPOINT_BUCKET" "$target" "${options[@]}" ||
  fail "s3://${TRAINING_STORAGE_MOUNTPOINT_BUCKET} cannot be mounted on ${LAKE_PATH}"
