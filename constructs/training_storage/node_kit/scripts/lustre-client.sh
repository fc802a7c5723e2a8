#!/usr/bin/env bash
# Concern: a Lustre client for the kernel that runs. The kernel is held, never upgraded.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
if [[ -z "$LUSTRE_PATH" ]]; then
  log "the contract has no file system"
  exit 0
fi
kernel="$(uname --kernel-release)"
system="$(distribution)"

# held_by_dnf LINE FILE: the line stands in the section that dnf reads.
held_by_dnf() {
  awk -v line="$1" '/^\[/ { main = /^\[main\]/ } main && $0 == line { found = 1 } END { exit !found }' "$2"
}

# A newer kernel at the next boot is one without a matching Lustre module.
hold_kernel() {
  case "$system" in
    amzn*)
      # The kernel packages themselves (kernel, kernel6.12 …), not their headers: drivers are built with those.
      local file="${KIT_ROOT}/etc/dnf/dnf.conf" line="excludepkgs=kernel,kernel6.?,kernel6.??"
      if [[ ! -e "$file" ]]; then put_file "$file" 0644 <<<"[main]" >/dev/null; fi
      if ! grep --quiet --fixed-strings --line-regexp "$line" "$file"; then
        if grep --quiet --extended-regexp '^(excludepkgs|exclude)[[:space:]]*=' "$file"; then
          fail "${file} has an excludepkgs line of its own: add ${line#*=} to it"
        fi
        if ! sed --in-place "/^\[main\]/a ${line}" "$file" || ! held_by_dnf "$line" "$file"; then
          fail "the kernel could not be held: ${file} has no section [main] that takes ${line}"
        fi
        log "held the kernel: ${line}"
      fi
      held_by_dnf "$line" "$file" || fail "the kernel is not held: ${line} must stand in section [main] of ${file}"
      ;;
    ubuntu*)
      # Of those installed: the kernels, their modules, and the packages that pull in newer ones (linux-aws …).
      local held package installed=() packages=()
      held="$(apt-mark showhold)"
      read_lines installed dpkg-query --show --showformat "\${db:Status-Abbrev} \${Package}\n" 'linux-*'
      for package in "${installed[@]}"; do
        if [[ "$package" =~ ^[hi]i\ +(linux-(image|modules|aws|headers-aws).*)$ ]]; then
          package="${BASH_REMATCH[1]}"
          if [[ $'\n'"$held"$'\n' != *$'\n'"$package"$'\n'* ]]; then packages+=("$package"); fi
        fi
      done
      if ((${#packages[@]})); then
        apt-mark hold "${packages[@]}" >/dev/null
        held="$(apt-mark showhold)"
        for package in "${packages[@]}"; do
          [[ $'\n'"$held"$'\n' == *$'\n'"$package"$'\n'* ]] ||
            fail "the kernel could not be held: apt-mark does not show ${package} as held"
        done
        log "held the kernel: ${packages[*]}"
      fi
      ;;
    *) fail "the kit knows Amazon Linux 2023 and Ubuntu 22.04 and 24.04, got: ${system}" ;;
  esac
}

# Amazon FSx for Lustre User Guide, "Performance tips": for clients with more than 64 vCPUs, before the modules load.
write_module_options() {
  if (("$(nproc)" > 64)); then
    local changed
    changed="$(printf 'options ptlrpc ptlrpcd_per_cpt_max=32\noptions ksocklnd credits=2560\n' |
      put_file "${KIT_ROOT}/etc/modprobe.d/training-storage-lustre.conf" 0644)"
    if [[ -n "$changed" && -e "${KIT_ROOT}/sys/module/ptlrpc" ]]; then
      log "the Lustre modules were loaded before their options: the options hold from the next boot on"
    fi
  fi
}

complete() {
  modinfo --set-version "$kernel" --field version lustre >/dev/null 2>&1 &&
    have lctl lfs lnetctl mount.lustre
}

no_client() {
  fail "there is no Lustre client for kernel ${kernel} on ${system}: start nodes from an image whose kernel has one"
}

# User Guide, "Installing the Lustre client".
install_client() {
  case "$system" in
    amzn*) install_packages lustre-client || no_client ;; # the modules are part of Amazon's kernel
    ubuntu*)
      local codename key="${KIT_ROOT}/usr/share/keyrings/fsx-ubuntu-public-key.gpg"
      # shellcheck source=/dev/null
      codename="$(source "${KIT_ROOT}/etc/os-release" && printf '%s' "$VERSION_CODENAME")"
      # AWS publishes no fingerprint of this key, so a downloaded one is trusted for its TLS connection alone. An image
      # that brings the key decides itself whom it trusts.
      if [[ -s "$key" ]]; then
        log "the image's own ${key#"$KIT_ROOT"} signs AWS's repository"
      else
        mkdir --parents "${key%/*}"
        retry 4 2 30 curl --silent --show-error --fail --max-time 60 --output "${key}.asc" \
          https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc
        gpg --batch --yes --dearmor --output "$key" "${key}.asc"
        log "downloaded the key of AWS's repository: $(gpg --batch --show-keys --with-colons "${key}.asc" |
          awk -F: '/^fpr:/ && !seen { seen = 1; print $10 }')"
      fi
      printf 'deb [signed-by=%s] https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu %s main\n' \
        "${key#"$KIT_ROOT"}" "$codename" |
        put_file "${KIT_ROOT}/etc/apt/sources.list.d/fsxlustreclientrepo.list" 0644 >/dev/null
      retry 4 2 30 apt-get update --quiet --option Acquire::http::Timeout=15 --option DPkg::Lock::Timeout=120
      # Asked first: a module that does not exist does not come by trying again.
      apt-cache show "lustre-client-modules-${kernel}" >/dev/null || no_client
      install_packages "lustre-client-modules-${kernel}" || no_client
      ;;
  esac
}

hold_kernel
write_module_options
if ! complete; then
  install_client
  complete || no_client
fi
log "the client for kernel ${kernel}: $(modinfo --set-version "$kernel" --field version lustre)"
if ((EFA_INTERFACES > 0)) && ! modinfo --set-version "$kernel" --field version kefalnd >/dev/null 2>&1; then
  fail "the Lustre client for kernel ${kernel} on ${system} has no EFA driver (kefalnd); Ubuntu needs kernel 6.8 or newer"
fi
