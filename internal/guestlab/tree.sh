#!/bin/bash
# tree.sh CACHE NAME: prints the folder of a root tree, and makes it first where it is not there.
#
#   NAME  bookworm, trixie   a minimal Debian with systemd, sshd, sudo, the guest agent and unattended-upgrades
#         noble              the bookworm tree that says it is Ubuntu 24.04: for what goes by names only
#         updates-NAME       a layer to put over one of these: package archives with updates of every sort, see archives.sh
#         dnf, zypper, pacman   the same with another package manager and its own repositories, see families.sh
#         debs-PACKAGE   a layer that holds /srv/debs/PACKAGE.deb, as this machine's apt has it, to be installed in the guest
#         NAME-u             each of the above, owned by 100000 and up, for unprivileged containers
#
# A tree is the lower layer of guests and is never written to. It is made aside and then renamed, under a lock for each name,
# so any number of processes may ask at once. After a week it is made anew. The packages come from the archives that this
# machine's apt knows; the tree itself knows none.
set -euo pipefail
umask 022
# The system's own programs only, so that scripts of packages do not start what somebody put before them.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
mkdir -p "$1"
cache=$(cd "$1" && pwd) name=$2
# What a tree is made by tells it from others of its name. Raise "form" when anything else changes how trees turn out.
form=1
case $name in
updates-*) key=$(cat "$(dirname "$0")/archives.sh") ;;
dnf | zypper | pacman) key=$(cat "$(dirname "$0")/families.sh" && sed -n '/^bootstrap()/,/^}/p' "$0") ;;
*) key=$(sed -n '/^bootstrap()/,/^}/p' "$0") ;;
esac
key=$(sha256sum <<<"$form $key" | cut -c1-12)
tree=$cache/$name-$key

exec 9>"$cache/$name.lock"
flock -w 900 9 || { echo "tree.sh: another process makes $name, and has for 15 minutes" >&2; exit 1; }
if [ -e "$tree/.made" ] && [ -z "$(find "$tree/.made" -mtime +6)" ]; then
	echo "$tree"
	exit
fi
[ "$(id -u)" = 0 ] || { echo "tree.sh: making $name takes root" >&2; exit 1; }
# In a mount namespace of its own nothing stays mounted, whatever ends this.
if [ -z "${GUESTLAB_PRIVATE:-}" ]; then
	exec 9>&-
	GUESTLAB_PRIVATE=1 exec unshare -m --propagation private bash "$0" "$cache" "$name"
fi
new=$cache/.$name.$$
trap 'rm -rf --one-file-system "$new" "$new".*' EXIT

# archives prints "address label" of the Debian archives of this machine.
archives() { apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' 'Origin: Debian' | sort -u; }

bootstrap() { # SUITE
	local main security
	[ -n "$(archives)" ] || apt-get update -qq
	main=$(archives | awk '$2 == "Debian" { print $1; exit }')
	security=$(archives | awk '$2 == "Debian-Security" { print $1; exit }')
	[ -n "$main" ] || { echo "tree.sh: this machine's apt has no index of Debian's archive; run apt-get update" >&2; exit 1; }
	{
		apt-config dump | grep -E '^Acquire::(Check-|[a-z]+::(Proxy|Timeout))' || true
		echo 'Acquire::Languages "none"; Acquire::Retries "3";'
	} >"$new.apt"
	local sources=("deb $main $1 main" "deb $main $1-updates main")
	[ -z "$security" ] || sources+=("deb $security $1-security main")
	# Without py3compile the scripts of Python packages leave out what takes them longest. Given as --include: what the tests
	# of commands and of updates look at, beside an init system and a way in.
	mkdir "$new.tmp"
	TMPDIR=$new.tmp mmdebstrap --quiet --variant=minbase --format=directory \
		--include=systemd-sysv,dbus,openssh-server,sudo,procps,iproute2,qemu-guest-agent,python3-apt,unattended-upgrades,needrestart \
		--aptopt="$new.apt" --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/bin/py3compile' \
		"$1" "$new" "${sources[@]}" >&2
	(
		cd "$new"
		rm -rf etc/apt/apt.conf.d/99mmdebstrap etc/dpkg/dpkg.cfg.d/99mmdebstrap etc/apt/sources.list etc/apt/sources.list.d/* var/lib/apt/lists/*
		rm -f etc/resolv.conf && : >etc/resolv.conf
		: >etc/machine-id
		# What would take the package lock by itself while a test runs, waits for devices that are not there, or asks the network.
		for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-networkd-wait-online.service; do
			ln -sf /dev/null "etc/systemd/system/$unit"
		done
	)
}

# index puts lists of the archives into a layer, as the tree's own apt makes them.
index() { # SUITE
	local base
	base=$(bash "$0" "$cache" "$1" 9>&-)
	mkdir "$new.mnt"
	mount -t tmpfs -o mode=755 guestlab "$new.mnt"
	mkdir "$new.mnt"/{upper,work,root}
	mount -t overlay -o "lowerdir=$new:$base,upperdir=$new.mnt/upper,workdir=$new.mnt/work" guestlab "$new.mnt/root"
	chroot "$new.mnt/root" apt-get -qq -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any update >&2
	cp -a "$new.mnt/upper/var/lib/apt/lists/." "$new/var/lib/apt/lists/"
	umount "$new.mnt/root" "$new.mnt"
}

case $name in
updates-*-u)
	base=$(bash "$0" "$cache" "${name%-u}" 9>&-)
	cp -a "$base" "$new"
	chown -hR 100000:100000 "$new"
	;;
updates-*)
	. "$(dirname "$0")/archives.sh"
	updates "${name#updates-}"
	index "${name#updates-}"
	;;
*-u)
	base=$(bash "$0" "$cache" "${name%-u}" 9>&-)
	mkdir "$new"
	# One pass that keeps the modes: changing an owner would clear the set-user-id bits.
	find "$base" -printf '%U\n' | sort -u | awk '{ print "+" $1, "+" $1 + 100000 }' >"$new.users"
	find "$base" -printf '%G\n' | sort -u | awk '{ print "+" $1, "+" $1 + 100000 }' >"$new.groups"
	tar -C "$base" --numeric-owner --owner-map="$new.users" --group-map="$new.groups" -cf - . | tar -C "$new" --numeric-owner -xpf -
	;;
noble)
	base=$(bash "$0" "$cache" bookworm 9>&-)
	cp -al "$base" "$new" # trees are never written to, so they may share their files
	rm -f "$new/etc/os-release" "$new/.made"
	printf '%s\n' 'PRETTY_NAME="Ubuntu 24.04.3 LTS"' 'NAME="Ubuntu"' 'VERSION_ID="24.04"' 'VERSION="24.04.3 LTS (Noble Numbat)"' \
		VERSION_CODENAME=noble ID=ubuntu ID_LIKE=debian UBUNTU_CODENAME=noble >"$new/etc/os-release"
	;;
debs-*)
	mkdir -p "$new/srv/debs" "$new.deb"
	chmod 755 "$new"
	(cd "$new.deb" && apt-get -qq -o APT::Sandbox::User=root download "${name#debs-}" >&2)
	mv "$new.deb"/*.deb "$new/srv/debs/${name#debs-}.deb"
	;;
dnf | zypper | pacman)
	. "$(dirname "$0")/families.sh"
	"family_$name"
	settled
	;;
bookworm | trixie) bootstrap "$name" ;;
*)
	echo "tree.sh: no tree is called $name" >&2
	exit 2
	;;
esac
touch "$new/.made"
# What other versions of this file made may still be in use.
for old in "$cache/$name"-????????????; do
	[ "$old" != "$tree" ] && [ -z "$(find "$old/.made" -mtime +1 2>/dev/null)" ] || rm -rf --one-file-system "$old"
done
mv "$new" "$tree"
echo "$tree"
