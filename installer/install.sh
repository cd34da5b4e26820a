#!/bin/sh
# Installs, upgrades and removes the agent or the control plane from the unpacked package that contains this file.
set -eu
umask 022

usage() {
  cat <<'TEXT'
Usage:
install.sh agent [--url <url> --token <token>] [--allow-http]    on a GPU host; with --url it is enrolled and started
install.sh control-plane                                         user, directories, unit and a commented configuration
install.sh remove agent|control-plane [--force] [--purge]        --force: also while it is in use; --purge: its data too

The same command out of a newer package upgrades: configuration and data stay, containers and SSH sessions go on, and a version that
does not start gives way to the one before it. `--token -` reads the token from the standard input.
  --prefix <dir>   where the versions are kept, instead of /opt/gpu-rental-service
  --root <dir>     everything is written below this directory; users and services are still those of this system
TEXT
}

say() { printf '%s\n' "$*"; }
die() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

main() {
  package=$(dirname "$(readlink -f "$0")")
  prefix=/opt/gpu-rental-service
  root='' url='' token='' allow_http='' force='' purge='' action=install
  if [ "${1-}" = remove ]; then action=remove && shift; fi
  role=${1-}
  case $role in
    agent | control-plane) shift ;;
    -h | --help) usage && exit 0 ;;
    '') usage >&2 && exit 2 ;;
    *) { printf 'install.sh: %s is neither agent nor control-plane\n\n' "$role" && usage; } >&2 && exit 2 ;;
  esac
  while [ $# -gt 0 ]; do
    case $1 in
      --url | --token | --prefix | --root) [ $# -gt 1 ] || die "$1 needs a value" ;;
    esac
    case $action-$role-$1 in
      *-*---prefix) prefix=$2 && shift ;;
      *-*---root) root=$2 && shift ;;
      install-agent---url) url=$2 && shift ;;
      install-agent---token) token=$2 && shift ;;
      install-agent---allow-http) allow_http=$1 ;;
      remove-*---force) force=$1 ;;
      remove-*---purge) purge=$1 ;;
      *) die "$1 is no option of $action $role; --help shows them" ;;
    esac
    shift
  done
  [ "${url:+given}" = "${token:+given}" ] || die 'an enrolment needs both --url and --token'
  case $prefix in
    *[!A-Za-z0-9/._-]* | */ | [!/]*) die '--prefix must be an absolute path of letters, digits and . _ -, without / at its end' ;;
  esac

  unit=svc-$role
  config=$root/etc/$unit/$role.yaml
  state=$root/var/lib/$unit
  cache=$root/var/cache/$unit
  unit_file=$root/etc/systemd/system/$unit.service
  command_link=$root/usr/local/bin/$unit
  home=$root$prefix
  # This link names the version that runs. Each role has its own link, so that one can be upgraded without the other.
  link=$home/$unit
  # An installation enables the unit while this mark is there. Without it, an upgrade leaves a unit disabled that the operator has disabled.
  mark=$home/.$unit.new
  exclude_others
  case $action in
    install) install ;;
    remove) remove ;;
  esac
}

# A second run would take the files of this one for those of an interrupted run. The lock ends with this process.
exclude_others() {
  [ -d "$root/" ] || return 0
  exec 9<"$root/"
  flock -n 9 || die "another install.sh is at work here: wait for it, then run this one again"
}

install() {
  build=$(grep . "$package/BUILD" 2>/dev/null) || die "there is no package in $package: unpack the .tar.gz and run its install.sh"
  before=$(version_of "$link")
  preflight
  [ "$token" != - ] || read -r token || [ -n "$token" ] || die 'there is no token on the standard input'
  place_version
  place_config
  if [ -z "$before" ] || [ -n "$url" ]; then : >"$mark"; fi
  point_to "$build"
  if [ -e "$mark" ]; then
    systemctl enable --quiet "$unit"
    rm -f "$mark"
  fi
  if [ -n "$url" ]; then
    # The token goes through a pipe: other users of this machine read the arguments of every process.
    # shellcheck disable=SC2086
    printf '%s\n' "$token" | "$link/bin/svc-agent" enroll --url "$url" --token - $allow_http --config "$config" ||
      die "$build is installed, but not enrolled; mend that and run the same command again"
  elif ! runs; then
    prune
    say "$build is installed in $prefix/$unit, and not started."
    [ "$role" = agent ] || say "Next: write down base_url in $config, then systemctl start $unit"
    [ "$role" = control-plane ] || say "Next: svc-agent enroll --config $config --url <url> --token <token>, then systemctl start $unit"
    return
  fi
  start || roll_back
  prune
  say "$build runs${before:+; before it, $before did}."
}

# Reports everything that is missing at once, before anything is changed.
preflight() {
  lacks=''
  # The SQLite of the control plane is built against a newer C library than Node.
  if [ "$role" = agent ]; then glibc_min=2.28; else glibc_min=2.34; fi
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || lack "this package is for Linux on x86_64, not for $(uname -s) on $(uname -m)"
  glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo none)
  is_at_least "${glibc#glibc }" "$glibc_min" ||
    lack "it needs glibc $glibc_min or newer, and here is ${glibc#glibc }: use Debian 12, Ubuntu 22.04 or newer"
  [ "$(id -u)" = 0 ] || lack 'it must run as root: use sudo'
  systemctl show --property=Version >/dev/null 2>&1 || lack 'systemd does not answer: it has to be what has started this machine'
  # Both would use the same configuration and state. A purge of the package would then delete what this version runs on.
  [ ! -e "$root/usr/lib/gpu-rental-$role" ] ||
    lack "gpu-rental-$role is installed as a Debian package: upgrade that one, or remove it first (apt-get remove gpu-rental-$role)"
  above=$home
  while [ ! -d "$above" ]; do above=$(dirname "$above"); done
  [ "$(df -Pk "$above" | awk 'NR == 2 { print $4 }')" -ge 524288 ] || lack "$above has less than 512 MiB of free space: make room"
  if [ "$role" = agent ] && ! command -v nvidia-container-runtime-hook >/dev/null; then
    lack 'nvidia-container-runtime-hook is missing: install the NVIDIA Container Toolkit, then systemctl restart docker'
  fi
  if ! "$package/bin/node" --version >/dev/null 2>&1; then
    [ -n "$lacks" ] || lack 'its Node does not start here: install libstdc++6'
  elif [ "$role" = agent ]; then
    check_host
  fi
  [ -z "$lacks" ] || die "nothing was changed, because$lacks"
}

# Runs the agent's own check.
check_host() {
  given=$config
  [ -e "$config" ] || given=$package/etc/agent.yaml
  if found=$("$package/bin/svc-agent" check --config "$given" 2>&1) || [ -n "$before" ]; then
    # An upgrade goes on: a host whose driver fails may need the newer version.
    say "$found"
  else
    lack "svc-agent check says: $found"
  fi
}

lack() {
  lacks="$lacks
  - $*"
}

is_at_least() {
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# A version that is there and whole stays. After a loss of power its files may be empty, and then it is replaced.
place_version() {
  version=$home/versions/$build
  ! diff -qr --no-dereference "$package" "$version" >/dev/null 2>&1 || return 0
  mkdir -p "$home/versions"
  drop_parts
  part=$home/versions/.$build
  # The files belong to root and everybody may read them, whoever has unpacked them.
  cp -R "$package" "$part"
  chmod -R u=rwX,go=rX "$part"
  flush "$part"
  rm -rf "$version"
  mv "$part" "$version"
}

# Deletes what interrupted runs have left.
drop_parts() { rm -rf "$home"/versions/.[!.]* "$link.new"; }

# Writes the file system of a path to its disk. A new name can reach the disk before the contents of the files.
flush() {
  sync -f "$1" 2>/dev/null || sync
}

# An existing configuration is not changed.
place_config() {
  if [ "$role" = control-plane ] && ! getent passwd "$unit" >/dev/null; then
    useradd --system --user-group --home-dir "/var/lib/$unit" --shell /usr/sbin/nologin "$unit"
  fi
  [ ! -e "$config" ] || return 0
  mkdir -p "$(dirname "$config")"
  part=$config.new
  cp "$package/etc/$role.yaml" "$part"
  chmod 0640 "$part"
  # It may hold the database's password.
  [ "$role" = agent ] || chown "root:$unit" "$part"
  # An interrupted run leaves nothing under the final name, because the next one would keep what the daemon may not read.
  mv "$part" "$config"
}

# Switches to another version with one rename of the link, and installs that version's unit. Compiled code serves one version only.
point_to() {
  ln -sfn "versions/$1" "$link.new"
  mv -T "$link.new" "$link"
  mkdir -p "$(dirname "$unit_file")" "$(dirname "$command_link")"
  sed "s|/opt/gpu-rental-service|$prefix|g" "$link/systemd/$unit.service" >"$unit_file"
  ln -sfn "$prefix/$unit/bin/$unit" "$command_link"
  flush "$home"
  flush "$unit_file"
  rm -rf "$cache"
  systemctl daemon-reload
}

version_of() {
  readlink "$1" 2>/dev/null | sed 's|^versions/||'
}

# True while the unit runs, also if it fails and restarts repeatedly.
runs() {
  case $(systemctl is-active "$unit" 2>/dev/null) in
    active | activating | reloading) return 0 ;;
  esac
  return 1
}

# Starts the unit. True once the daemon is up: the control plane's unit notifies systemd, and the agent is asked for its status.
start() {
  systemctl restart "$unit" || return 1
  [ "$role" = agent ] || return 0
  tries=0
  ended=$(restarts)
  until is_up; do
    tries=$((tries + 1))
    if [ "$tries" -gt 60 ] || [ "$(restarts)" != "$ended" ]; then return 1; fi
    sleep 1
  done
}

# True if the agent answers. It may lack a link or a GPU, because that is no fault of its version.
is_up() {
  how=$("$link/bin/svc-agent" status --config "$config" 2>/dev/null) || true
  case $how in
    agent:*) say "$how" ;;
    *) return 1 ;;
  esac
}

restarts() { systemctl show --property=NRestarts --value "$unit"; }

roll_back() {
  why="journalctl --unit $unit --lines 30 says why"
  case $before in '' | "$build") die "$build does not start; $why" ;; esac
  say "$build does not start: back to $before"
  point_to "$before"
  start || die "neither $build nor, again, $before starts; $why"
  die "$build does not start, and $before runs again; $why"
}

# Removes versions without a link, except the one before this.
prune() {
  drop_parts
  for folder in "$home"/versions/*; do
    case ${folder##*/} in
      "$(version_of "$home/svc-agent")" | "$(version_of "$home/svc-control-plane")" | "$before" | '*') ;;
      *) rm -rf "$folder" ;;
    esac
  done
}

remove() {
  before=''
  settings=$(dirname "$config")
  if [ -L "$link" ]; then take_away; else check_remains; fi
  if [ -z "$purge" ]; then
    say "$unit is removed; $settings and $state are kept (--purge removes them)"
    return
  fi
  if [ "$role" = control-plane ]; then remove_user; fi
  rm -rf "$settings" "$state"
  say "$unit is removed with all its data"
}

# It goes before its data: with them, the same command can be given again. userdel ends with 6 if there is no such user.
remove_user() {
  userdel "$unit" || [ $? = 6 ] ||
    die "the program is removed; $settings, $state and the user $unit are kept, because the user cannot be removed: end its processes (ps -u $unit shows them), then run the same command again"
}

take_away() {
  was_running=''
  if runs; then was_running=yes; fi
  if [ "$role$was_running$force" = control-planeyes ]; then
    die "it serves customers: systemctl stop $unit first, or end it with --force"
  fi
  # The unit is enabled again if this removal does not come to its end.
  if systemctl is-enabled --quiet "$unit" 2>/dev/null; then : >"$mark"; fi
  # An interrupted run may have left the link without the unit. systemd refuses to disable a unit that has no file.
  if [ -e "$unit_file" ] || [ -n "$was_running" ]; then systemctl disable --quiet --now "$unit"; fi
  if [ "$role" = agent ] && ! "$link/bin/svc-agent" clear --config "$config" ${force:+--force}; then
    if [ -n "$was_running" ]; then
      systemctl enable --quiet --now "$unit"
    elif [ -e "$mark" ]; then
      systemctl enable --quiet "$unit"
    fi
    rm -f "$mark"
    die 'nothing was removed'
  fi
  rm -f "$unit_file" "$command_link" "$link" "$mark"
  rm -rf "$cache"
  systemctl daemon-reload
  prune
  rmdir "$home/versions" "$home" 2>/dev/null || true
}

# Passes if an earlier removal has kept data that this one is to delete, and nothing else uses them.
check_remains() {
  if [ -z "$purge" ] || { [ ! -e "$settings" ] && [ ! -e "$state" ]; }; then die "$unit is not installed in $prefix"; fi
  [ ! -e "$root/usr/lib/gpu-rental-$role" ] ||
    die "gpu-rental-$role is installed as a Debian package: apt-get purge gpu-rental-$role removes it with its data"
  if [ -e "$unit_file" ] || runs; then
    die "$unit is not installed in $prefix, and what is installed elsewhere uses its data: name that place with --prefix"
  fi
}

main "$@"
exit 0
