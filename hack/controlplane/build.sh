#!/usr/bin/env bash
# Builds the real servers that tests and the demo run against, once, into the cache,
# and prints the folder they are in as its last line.
#
#   build.sh controlplane   kube-apiserver and etcd
#   build.sh forge          gitea, with the static files it serves
#   build.sh issuer         dex, an identity provider
#   build.sh crds           the CRDs of Flux and GitopsCluster, from the modules in crds.sum
#
# KUBEBUILDER_ASSETS, when it names a folder with kube-apiserver and etcd, is used instead
# of building; so is SLUICE_FORGE for a folder with gitea, and SLUICE_ISSUER for one with dex.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
say() { printf '%s\n' "$*" >&2; }
die() { say "✗ $*"; exit 1; }

need_go() {
  command -v go >/dev/null || die "Go is not installed: the test servers are built from source. Install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd"
  local have; have=$(GOTOOLCHAIN=local go env GOVERSION)
  [ "$(printf '%s\n' go1.26 "$have" | sort -V | head -n 1)" = go1.26 ] ||
    die "Go is $have, and the test servers need 1.26 or newer: install it, or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd"
}

# The version that a module file pins for a module.
pinned() { awk -v m="$2" '$1 == "require" && $2 == m { print $3; exit } $1 == m && $2 ~ /^v/ { print $2; exit }' "$here/$1/go.mod"; }

# build FOLDER PACKAGE OUTPUT [go build flags]: one binary, put in place only when whole.
# Nobody debugs these servers, and without debug information the compiler has less to do.
build() {
  local folder=$1 package=$2 out=$3; shift 3
  [ -x "$out" ] && return 0
  local started=$SECONDS log=$out.log
  say "► building $(basename "$out") (a few minutes the first time)"
  ( cd "$here/$folder" &&
    GOTOOLCHAIN=local GOFLAGS=-mod=readonly GOWORK=off go build -v -trimpath -buildvcs=false -gcflags=all=-dwarf=false "$@" -o "$out.part" "$package" ) 2>&1 |
    tee "$log" | awk '/^[^ ]+$/ && ++n % 150 == 0 { printf "  %d packages compiled\n", n; fflush() }' >&2 ||
    { tail -n 20 "$log" >&2; die "building $(basename "$out") failed; the whole output is in $log"; }
  mv "$out.part" "$out"
  rm -f "$log"
  say "✔ $(basename "$out") built in $((SECONDS - started)) s"
}

# One build at a time for each folder of the cache; the second caller finds it done.
lock() { mkdir -p "$1"; exec 9>"$1/.lock"; flock 9; }

controlplane() {
  if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    for b in kube-apiserver etcd; do
      [ -x "$KUBEBUILDER_ASSETS/$b" ] || die "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, and there is no $b in it: unset it to have the servers built, or point it at a folder that has them"
    done
    printf '%s\n' "$KUBEBUILDER_ASSETS"; return
  fi
  local kube etcd dir package
  kube=$(pinned kubernetes k8s.io/kubernetes); etcd=$(pinned kubernetes go.etcd.io/etcd/server/v3)
  dir=$cache/controlplane-kubernetes-$kube-etcd-$etcd
  if [ ! -x "$dir/kube-apiserver" ] || [ ! -x "$dir/etcd" ]; then
    need_go; lock "$dir"
    export CGO_ENABLED=0
    build kubernetes go.etcd.io/etcd/server/v3 "$dir/etcd" -ldflags '-s -w'
    package=k8s.io/component-base/version
    local major=${kube#v}; major=${major%%.*}; local minor=${kube#v*.}; minor=${minor%%.*}
    local flags="-s -w -X $package.gitVersion=$kube -X $package.gitMajor=$major -X $package.gitMinor=$minor"
    build kubernetes k8s.io/kubernetes/cmd/kube-apiserver "$dir/kube-apiserver" -ldflags "$flags"
  fi
  printf '%s\n' "$dir"
}

forge() {
  if [ -n "${SLUICE_FORGE:-}" ]; then
    [ -x "$SLUICE_FORGE/gitea" ] || die "SLUICE_FORGE is $SLUICE_FORGE, and there is no gitea in it: unset it to have Gitea built"
    printf '%s\n' "$SLUICE_FORGE"; return
  fi
  local version dir source
  version=$(pinned gitea code.gitea.io/gitea)
  dir=$cache/forge-gitea-$version
  if [ ! -x "$dir/gitea" ] || [ ! -d "$dir/static" ]; then
    need_go; lock "$dir"
    command -v cc >/dev/null || die "a C compiler is needed to build Gitea (its database is SQLite): install gcc"
    source=$(cd "$here/gitea" && GOTOOLCHAIN=local GOFLAGS=-mod=mod go mod download -json "code.gitea.io/gitea@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    CGO_ENABLED=1 build gitea code.gitea.io/gitea "$dir/gitea" -tags 'sqlite sqlite_unlock_notify' -ldflags "-s -w -X main.Version=${version#v}"
    if [ ! -d "$dir/static" ]; then
      rm -rf "$dir/static.part"; mkdir "$dir/static.part"
      cp -r "$source/templates" "$source/options" "$source/public" "$dir/static.part/"
      chmod -R u+w "$dir/static.part"; mv "$dir/static.part" "$dir/static"
    fi
  fi
  printf '%s\n' "$dir"
}

issuer() {
  if [ -n "${SLUICE_ISSUER:-}" ]; then
    [ -x "$SLUICE_ISSUER/dex" ] || die "SLUICE_ISSUER is $SLUICE_ISSUER, and there is no dex in it: unset it to have Dex built"
    printf '%s\n' "$SLUICE_ISSUER"; return
  fi
  local version dir
  version=$(pinned dex github.com/dexidp/dex)
  dir=$cache/issuer-dex-$version
  if [ ! -x "$dir/dex" ]; then
    need_go; lock "$dir"
    command -v cc >/dev/null || die "a C compiler is needed to build Dex (one of its stores is SQLite): install gcc"
    CGO_ENABLED=1 build dex github.com/dexidp/dex/cmd/dex "$dir/dex" -ldflags '-s -w'
  fi
  printf '%s\n' "$dir"
}

# The folder is named after what is in it, so that a changed pin makes a new one.
crds() {
  local dir module version sum json source
  dir=$cache/crds-$(cksum < "$here/crds.sum" | cut -d ' ' -f 1)
  if [ ! -e "$dir/complete" ]; then
    need_go; lock "$dir"
    while read -r module version sum; do
      json=$(cd "$here/gitea" && GOTOOLCHAIN=local GOFLAGS=-mod=mod GOWORK=off go mod download -json "$module@$version") ||
        die "cannot fetch $module $version: $json"
      [ "$(sed -n 's/^\t"Sum": "\(.*\)",*$/\1/p' <<< "$json")" = "$sum" ] ||
        die "$module $version is not what crds.sum pins ($sum): somebody changed it. Do not use it before you know why"
      source=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<< "$json")
      cp "$source"/config/crd/bases/*.yaml "$dir/"
    done < "$here/crds.sum"
    chmod u+w "$dir"/*.yaml
    touch "$dir/complete"
    say "✔ CRDs of Flux and GitopsCluster fetched"
  fi
  printf '%s\n' "$dir"
}

case ${1:-} in
  controlplane | forge | issuer | crds) "$1" ;;
  *) die "usage: build.sh controlplane|forge|issuer|crds" ;;
esac
