#!/usr/bin/env bash
# Concern: the storage contract. From its SSM parameter to storage.json and storage.env, at every boot.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
mkdir --parents "$KIT_RUN" "$KIT_ETC"
# These say whether the contract was read at this boot: with an old copy on the disk a failure must not go unseen.
rm --force "${KIT_RUN}/contract-read"
new="$(mktemp "${KIT_ETC}/.contract.XXXXXX")"
trap 'rm --force "$new" "$new.env" "$new.error"' EXIT

read_parameter() {
  aws ssm get-parameter --region "$KIT_REGION" --name "$KIT_PARAMETER" --query Parameter.Value --output text \
    >"$new" 2>"$new.error" || {
    cat "$new.error" >&2
    return 1
  }
}

give_up() {
  printf '%s\n' "$1" >"${KIT_RUN}/contract-error"
  fail "$1"
}

retry 8 2 30 read_parameter ||
  give_up "the parameter ${KIT_PARAMETER} cannot be read in ${KIT_REGION}: $(tr '\n' ' ' <"$new.error")"
python3 -I "${KIT_HOME}/lib/contract_env.py" "$new" "$KIT_REGION" "$KIT_JOB" >"$new.env" 2>"$new.error" ||
  give_up "the contract in ${KIT_PARAMETER} is not usable: $(tr '\n' ' ' <"$new.error")"
put_file "${KIT_ETC}/storage.env" 0644 <"$new.env" >/dev/null
put_file "${KIT_ETC}/storage.json" 0644 <"$new" >/dev/null
rm --force "${KIT_RUN}/contract-error"
touch "${KIT_RUN}/contract-read"
log "read ${KIT_PARAMETER}"
