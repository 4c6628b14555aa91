# Sourced by tree.sh: trees of the other families. Each is the Debian tree of its line with the family's own package manager from
# Debian, a database of its own with small test packages in their first version, and signed repositories that know updates of
# every sort. What the tree says it is, is the distribution of that family.
#
#   dnf      Rocky Linux 9: dnf 4 of the same version, repositories baseos, appstream, and docker-ce-stable of a third party
#   zypper   openSUSE Leap 15.6: repositories repo-oss, repo-update, and packman of a third party
#   pacman   Arch Linux: repositories core, extra, and chaotic of a third party
#
#   /srv/guestlab/REPOSITORY   the repositories
#   /srv/guestlab/first        the first versions; what a guest shall have of them is installed by its test

# family BASE PACKAGE...: $new becomes a copy of a tree with more Debian packages.
family() {
	local base=$1 from security
	shift
	from=$(bash "$0" "$cache" "$base" 9>&-)
	cp -a --reflink=auto "$from" "$new"
	rm "$new/.made"
	[ -n "$(archives)" ] || apt-get update -qq
	from=$(archives | awk '$2 == "Debian" { print $1; exit }')
	{ apt-config dump | grep -E '^Acquire::(Check-|[a-z]+::(Proxy|Timeout))' || true; } >"$new/etc/apt/apt.conf.d/99guestlab"
	printf '%s\n' 'Acquire::Languages "none"; Acquire::Retries "3"; DPkg::Options:: "--force-unsafe-io"; APT::Sandbox::User "root";' >>"$new/etc/apt/apt.conf.d/99guestlab"
	security=$(archives | awk '$2 == "Debian-Security" { print $1; exit }')
	printf '%s\n' "deb $from $base main" "deb $from $base-updates main" ${security:+"deb $security $base-security main"} >"$new/etc/apt/sources.list"
	mount -t proc proc "$new/proc" && mount --rbind /dev "$new/dev" # of this script's own mount namespace
	cp -L /etc/resolv.conf "$new/etc/resolv.conf"
	[ ! -e /etc/hosts ] || cp /etc/hosts "$new/etc/hosts"
	chroot "$new" apt-get -qq -o APT::Update::Error-Mode=any update >&2
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 chroot "$new" apt-get -qq -y --no-install-recommends install "$@" >"$new.log" 2>&1 || { tail -20 "$new.log" >&2; exit 1; }
	chroot "$new" apt-get clean
	rm -rf "$new"/var/lib/apt/lists/* "$new/etc/apt/apt.conf.d/99guestlab" "$new/etc/apt/sources.list" "$new.log"
	: >"$new/etc/resolv.conf"
}

# settled ends what the tree's making left running and mounted.
settled() {
	umount -l "$new/proc"
	umount -R -l "$new/dev"
}

# distribution ID NAME VERSION [LINE...]: what the tree says it is.
distribution() {
	rm -f "$new/etc/os-release"
	printf '%s\n' "ID=\"$1\"" "NAME=\"$2\"" ${3:+"VERSION_ID=\"$3\""} "PRETTY_NAME=\"$2${3:+ $3}\"" "${@:4}" >"$new/etc/os-release"
}

# key: makes one for signing at /root/gpg in the tree; keyid is set to it, and its public part is printed.
key() {
	mkdir -m 700 "$new/root/gpg"
	chroot "$new" gpg --homedir /root/gpg --batch --quiet --passphrase '' --quick-gen-key 'guest lab <lab@example.invalid>' rsa2048 sign 30d >&2
	chroot "$new" gpg --homedir /root/gpg --batch --quiet --armor --export
}

# rpm REPOSITORY NAME VERSION [TAG...] <BODY: notes a package down; BODY may hold %post and the like, and files made by "file".
rpm() {
	local repo=$1 name=$2 version=$3 folder=$2
	shift 3
	case $name in kernel-*) folder=$name-$version ;; esac # several are there at once
	{
		printf '%s\n' "%define _rpmdir /srv/guestlab/$repo" "Name: $name" "Version: ${version%-*}" "Release: ${version##*-}" \
			"Summary: Package $name for tests" 'License: none' 'BuildArch: noarch' 'AutoReqProv: no' 'Vendor: Guest Lab' "$@" \
			'%description' "Package $name for tests." '%install' "mkdir -p %{buildroot}/usr/share/$folder" "echo $version >%{buildroot}/usr/share/$folder/version"
		[ ! -e "$new/root/install" ] || cat "$new/root/install"
		cat
		printf '%s\n' '%files' "/usr/share/$folder"
		[ ! -e "$new/root/files" ] || cat "$new/root/files"
	} >"$new/root/specs/$repo-$name-$version.spec"
	rm -f "$new/root/install" "$new/root/files"
}

# file PATH [MARK] <CONTENT: of the next package.
file() {
	printf 'mkdir -p %%{buildroot}%s\ncat >%%{buildroot}%s <<"CONTENT"\n%s\nCONTENT\n' "$(dirname "$1")" "$1" "$(cat)" >>"$new/root/install"
	echo "${2:-} $1" >>"$new/root/files"
}

# rpms BASE UPDATES THIRD OWNER: the packages of a family of rpm. OWNER is the package that owns the keys of the distribution.
rpms() {
	local base=$1 updates=$2 third=$3 owner=$4 name version repo
	mkdir -p "$new/root/specs" "$new/etc/pki/rpm-gpg" "$new/srv/guestlab"
	key >"$new/root/key.asc"
	for name in lib app held slow fail failpost new old repl shadow vendor big; do rpm first demo-$name 1.0-1 </dev/null; done
	rpm first bash 5.0-1 'Provides: /bin/sh' 'Provides: /usr/bin/sh' </dev/null
	file /etc/pki/rpm-gpg/RPM-GPG-KEY-guestlab <"$new/root/key.asc"
	rpm first "$owner" 1.0-1 'Provides: system-release = 9' 'Provides: distribution-release = 9' </dev/null
	rpm $updates demo-lib 1.1-1 </dev/null
	rpm $updates demo-app 1.1-1 </dev/null
	rpm $base demo-app 1.0.5-1 </dev/null
	rpm $updates demo-held 1.1-1 </dev/null
	rpm $third docker-demo 1.1-1 </dev/null
	rpm first docker-demo 1.0-1 </dev/null
	rpm $updates demo-shadow 1.1-1 </dev/null
	rpm $third demo-shadow 9.0-1 </dev/null
	for version in 1.0-1 1.1-1; do
		repo=first && [ $version = 1.0-1 ] || repo=$updates
		file /etc/demo-conf.conf '%config(noreplace)' <<<"shipped = $version"
		rpm $repo demo-conf $version </dev/null
	done
	rpm $updates demo-fail 1.1-1 <<-'END'
		%pre
		[ -e /etc/demo-fail-ok ] || { echo "demo-fail: this machine is not to its liking" >&2; exit 1; }
	END
	rpm $updates demo-failpost 1.1-1 <<<$'%post\necho "demo-failpost: could not set itself up" >&2; exit 1'
	rpm $updates demo-slow 1.1-1 <<-'END'
		%post
		seconds=$(cat /etc/demo-slow 2>/dev/null || echo 20)
		for second in $(seq "$seconds"); do
			echo "demo-slow: second $second of $seconds"
			sleep 1
		done
		date +%s >/run/demo-slow.done
	END
	for version in 1.0-1 1.2-1; do
		repo=first name='/bin/sleep infinity' && [ $version = 1.0-1 ] || repo=$updates name='/bin/sh -c "sleep 0.2; exit 3"'
		printf '[Unit]\nDescription=Service of the tests\n[Service]\nExecStart=%s\n[Install]\nWantedBy=multi-user.target\n' "$name" | file /usr/lib/systemd/system/demo-svc.service
		rpm $repo demo-svc $version <<-'END'
			%post
			systemctl --quiet enable demo-svc.service
			[ ! -d /run/systemd/system ] || { systemctl daemon-reload && systemctl restart demo-svc.service; } || true
		END
	done
	rpm $updates demo-new 1.1-1 'Requires: demo-new-lib' </dev/null
	rpm $updates demo-new-lib 1:1.1-1 </dev/null
	rpm $updates demo-repl 1.1-1 'Obsoletes: demo-old < 2' </dev/null
	rpm $updates a-package-whose-name-is-so-long-that-no-table-of-eighty-columns-has-room-for-it 1.1-1 </dev/null
	rpm first a-package-whose-name-is-so-long-that-no-table-of-eighty-columns-has-room-for-it 1.0-1 </dev/null
	rpm first glibc 2.34-1 </dev/null
	rpm $updates glibc 2.34-2 </dev/null
	for version in 1 2; do
		repo=first && [ $version = 1 ] || repo=$updates
		rpm $repo kernel-core 5.14.0-$version 'Provides: installonlypkg(kernel)' "Provides: kernel-core-uname-r = 5.14.0-$version.x86_64" </dev/null
	done
	sed -i 's/^Version: 1:/Epoch: 1\nVersion: /' "$new"/root/specs/*.spec
	# Sizes as real ones have them: the space that an upgrade needs is told by them.
	sed -i 's#^mkdir -p %{buildroot}/usr/share/demo-big$#&\nhead -c 20000000 /dev/urandom >%{buildroot}/usr/share/demo-big/data#' "$new"/root/specs/*-demo-big-*.spec
	chroot "$new" sh -c 'rpmbuild -bb --quiet --noclean --define "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm" --define "_buildhost lab" \
		--define "_build_id_links none" --define "__os_install_post %{nil}" --define "_binary_payload w1.gzdio" /root/specs/*.spec &&
		rpm --define "__gpg /usr/bin/gpg" --define "_gpg_name guest lab" --define "_gpg_path /root/gpg" --addsign /srv/guestlab/*/*.rpm' >"$new/root/log" 2>&1 || { tail "$new/root/log" >&2; exit 1; }
	cp "$new"/srv/guestlab/first/*.rpm "$new/srv/guestlab/$base/"
	for repo in $base $updates $third; do
		chroot "$new" createrepo_c --quiet --no-database "/srv/guestlab/$repo"
	done
	advisories >"$new/root/updateinfo.xml"
	chroot "$new" modifyrepo_c /root/updateinfo.xml "/srv/guestlab/$updates/repodata" >/dev/null
	for repo in $base $updates $third; do
		chroot "$new" gpg --homedir /root/gpg --batch --yes --quiet --armor --detach-sign "/srv/guestlab/$repo/repodata/repomd.xml"
		cp "$new/root/key.asc" "$new/srv/guestlab/$repo/repodata/repomd.xml.key"
	done
	chroot "$new" sh -c 'rpm --import /root/key.asc && rpm -U --quiet /srv/guestlab/first/bash-*.rpm /srv/guestlab/first/'"$owner"'-*.rpm'
	rm -rf "$new/root/specs" "$new/root/rpmbuild" "$new/root/gpg" "$new/root/key.asc" "$new/root/log" "$new/root/updateinfo.xml"
}

# advisories: which updates are security's, as a repository tells it.
advisories() {
	local n=0 name version type
	echo '<?xml version="1.0" encoding="UTF-8"?><updates>'
	while read -r type name version; do
		n=$((n + 1))
		printf '<update from="lab@example.invalid" status="final" type="%s" version="1"><id>LAB-2026:%04d</id><title>%s update</title><issued date="2026-01-01 00:00:00"/><updated date="2026-01-01 00:00:00"/><severity>Important</severity><summary>x</summary><description>x</description><references/><pkglist><collection short="lab"><name>lab</name><package name="%s" epoch="%s" version="%s" release="%s" arch="noarch" src="%s.src.rpm"><filename>%s-%s.noarch.rpm</filename></package></collection></pkglist></update>\n' \
			"$type" $n "$name" "$name" 0 "${version%-*}" "${version##*-}" "$name" "$name" "$version"
	done <<-'END'
		security demo-lib 1.1-1
		security demo-held 1.1-1
		security demo-shadow 1.1-1
		security demo-conf 1.1-1
		security demo-fail 1.1-1
		security demo-failpost 1.1-1
		security demo-slow 1.1-1
		security demo-svc 1.2-1
		security demo-new 1.1-1
		security demo-repl 1.1-1
		security kernel-core 5.14.0-2
		security glibc 2.34-2
		bugfix demo-app 1.1-1
		enhancement a-package-whose-name-is-so-long-that-no-table-of-eighty-columns-has-room-for-it 1.1-1
	END
	echo '</updates>'
}

family_dnf() {
	family bookworm dnf dnf-plugins-core rpm createrepo-c gpg gpg-agent
	mkdir -p "$new/etc/rpm" "$new/etc/yum.repos.d"
	echo '%_dbpath /var/lib/rpm' >"$new/etc/rpm/macros.guestlab"
	distribution rocky 'Rocky Linux' 9.4 'ID_LIKE="rhel centos fedora"' 'PLATFORM_ID="platform:el9"' 'SUPPORT_END="2032-05-31"'
	rpms baseos appstream docker-ce-stable rocky-gpg-keys
	local name
	for name in baseos appstream docker-ce-stable; do
		printf '[%s]\nname=%s\nbaseurl=file:///srv/guestlab/%s\nenabled=1\ngpgcheck=1\nrepo_gpgcheck=0\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-%s\n' \
			$name $name $name "$([ $name = docker-ce-stable ] && echo docker || echo guestlab)" >"$new/etc/yum.repos.d/$name.repo"
	done
	cp "$new/etc/pki/rpm-gpg/RPM-GPG-KEY-guestlab" "$new/etc/pki/rpm-gpg/RPM-GPG-KEY-docker"
	printf '[main]\nenabled=0\n' >"$new/etc/dnf/plugins/local.conf" # Debian has it on, others have it not at all
	# What Python compiles once is not compiled again in each guest.
	chroot "$new" env -u PYTHONDONTWRITEBYTECODE sh -c 'dnf -q makecache && dnf -q -C repoquery --upgrades && { dnf -C --assumeno upgrade || true; } && { dnf -q -C needs-restarting -r || true; }' >/dev/null
	rm -rf "$new"/var/cache/dnf/* "$new"/var/log/dnf* "$new"/var/log/hawkey*
}

family_zypper() {
	family trixie zypper rpm createrepo-c gpg gpg-agent
	distribution opensuse-leap 'openSUSE Leap' 15.6 'ID_LIKE="suse opensuse"'
	rm -rf "$new/etc/zypp/repos.d" && mkdir -p "$new/etc/zypp/repos.d"
	rpms repo-oss repo-update packman openSUSE-build-key
	local name
	for name in repo-oss repo-update packman; do
		printf '[%s]\nname=%s\nbaseurl=dir:///srv/guestlab/%s\nenabled=1\nautorefresh=1\ngpgcheck=1\ntype=rpm-md\n' $name $name $name >"$new/etc/zypp/repos.d/$name.repo"
	done
}

# arch REPOSITORY NAME VERSION [LINE...] <INSTALL: notes a package of pacman; INSTALL is its script, if any.
arch() {
	local repo=$1 name=$2 version=$3 dir=$new/root/build
	shift 3
	mkdir -p "$dir/usr/share/$name" "$new/srv/guestlab/$repo"
	echo "$version" >"$dir/usr/share/$name/version"
	printf '%s\n' "pkgname = $name" "pkgbase = $name" "pkgver = $version" 'pkgdesc = for tests' 'url = none' 'builddate = 1700000000' 'packager = Guest Lab' 'size = 10' 'arch = any' 'license = none' "$@" >"$dir/.PKGINFO"
	cat >"$dir/.INSTALL"
	[ -s "$dir/.INSTALL" ] || rm "$dir/.INSTALL"
	tar -C "$dir" --owner=0 --group=0 --zstd -cf "$new/srv/guestlab/$repo/$name-$version-any.pkg.tar.zst" $(ls -A "$dir")
	rm -rf "$dir"
}

family_pacman() {
	local name repo version
	family trixie pacman-package-manager makepkg libarchive-tools zstd gpg gpg-agent
	distribution arch 'Arch Linux' '' 'BUILD_ID=rolling'
	key >"$new/root/key.asc"
	for name in lib app held slow fail failpost new old repl shadow; do arch first demo-$name 1.0-1 </dev/null; done
	arch core demo-lib 1.1-1 </dev/null
	arch extra demo-app 1:1.1-1 </dev/null
	arch core demo-held 1.1-1 </dev/null
	arch first chaotic-demo 1.0-1 </dev/null
	arch chaotic chaotic-demo 1.1-1 </dev/null
	arch core demo-shadow 1.1-1 </dev/null
	arch chaotic demo-shadow 9.0-1 </dev/null
	for version in 1.0-1 1.1-1; do
		repo=first && [ $version = 1.0-1 ] || repo=core
		mkdir -p "$new/root/build/etc" && echo "shipped = $version" >"$new/root/build/etc/demo-conf.conf"
		arch $repo demo-conf $version 'backup = etc/demo-conf.conf' </dev/null
	done
	arch core demo-failpost 1.1-1 <<<'post_upgrade() { echo "demo-failpost: could not set itself up" >&2; exit 1; }'
	mkdir -p "$new/root/build/etc" && echo stray >"$new/root/build/etc/demo-stray" # a file that may lie there already
	arch core demo-fail 1.1-1 </dev/null
	arch core demo-slow 1.1-1 <<-'END'
		post_upgrade() {
			seconds=$(cat /etc/demo-slow 2>/dev/null || echo 20)
			for second in $(seq "$seconds"); do
				echo "demo-slow: second $second of $seconds"
				sleep 1
			done
			date +%s >/run/demo-slow.done
		}
	END
	for version in 1.0-1 1.2-1; do
		repo=first name='/bin/sleep infinity' && [ $version = 1.0-1 ] || repo=core name='/bin/sh -c "sleep 0.2; exit 3"'
		mkdir -p "$new/root/build/usr/lib/systemd/system"
		printf '[Unit]\nDescription=Service of the tests\n[Service]\nExecStart=%s\n[Install]\nWantedBy=multi-user.target\n' "$name" >"$new/root/build/usr/lib/systemd/system/demo-svc.service"
		arch $repo demo-svc $version <<-'END'
			post_install() { systemctl --quiet enable demo-svc.service; [ ! -d /run/systemd/system ] || { systemctl daemon-reload && systemctl restart demo-svc.service; } || true; }
			post_upgrade() { post_install; }
		END
	done
	arch core demo-new 1.1-1 'depend = demo-new-lib' </dev/null
	arch core demo-new-lib 1.1-1 </dev/null
	arch core demo-repl 1.1-1 'replaces = demo-old' 'conflict = demo-old' </dev/null
	arch first linux 6.6.1-1 </dev/null
	arch core linux 6.6.2-1 </dev/null
	for repo in core extra chaotic; do
		chroot "$new" bash -c "cd /srv/guestlab/$repo && for p in *.zst; do gpg --homedir /root/gpg --batch --quiet --detach-sign --no-armor \$p; done && repo-add --quiet $repo.db.tar.gz *.zst" >"$new/root/log" 2>&1 || { tail "$new/root/log" >&2; exit 1; }
	done
	cat >"$new/etc/pacman.conf" <<-'END'
		[options]
		HoldPkg = pacman glibc
		Architecture = auto
		SigLevel = Required DatabaseOptional
		LocalFileSigLevel = Optional
		#DownloadUser = alpm
		DisableSandbox
		[core]
		Include = /etc/pacman.d/mirrorlist
		[extra]
		Include = /etc/pacman.d/mirrorlist
		[chaotic]
		Server = file:///srv/guestlab/chaotic
	END
	mkdir -p "$new/etc/pacman.d" "$new/usr/share/pacman/keyrings"
	echo 'Server = file:///srv/guestlab/$repo' >"$new/etc/pacman.d/mirrorlist"
	cp "$new/root/key.asc" "$new/usr/share/pacman/keyrings/archlinux.gpg"
	chroot "$new" sh -c 'pacman-key --init && pacman-key --add /root/key.asc && pacman-key --lsign-key lab@example.invalid && gpgconf --homedir /etc/pacman.d/gnupg --kill all' >"$new/root/log" 2>&1 || { tail "$new/root/log" >&2; exit 1; }
	rm -rf "$new/root/build" "$new/root/gpg" "$new/root/key.asc" "$new/root/log"
}
