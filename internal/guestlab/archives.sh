# Sourced by tree.sh: the layer with signed archives of small test packages, for which updates of every sort are pending.
#
#   /srv/guestlab/debian           base (SUITE), updates (SUITE-updates), backports
#   /srv/guestlab/debian-security  security
#   /srv/guestlab/docker           a third party
#   /srv/guestlab/ubuntu           all pockets in one, for noble
#
# beside the sources, the key and the package lists of them. The first version of each package is in base or docker.

# deb POOL NAME VERSION [FIELD...]: packs what was staged with put and script, and a file that tells the version.
deb() {
	local archive=debian pool=$1 name=$2 version=$3
	shift 3
	case $pool in security) archive=debian-security ;; thirdparty) archive=docker ;; esac
	mkdir -p "$stage/DEBIAN" "$stage/usr/share/$name" "$srv/$archive/pool/$pool"
	echo "$version" >"$stage/usr/share/$name/version"
	{
		printf '%s\n' "Package: $name" "Version: $version" 'Architecture: all' 'Maintainer: Guest Lab <lab@example.invalid>' "$@"
		echo "Description: package $name for tests"
	} >"$stage/DEBIAN/control"
	dpkg-deb -Znone --root-owner-group --build "$stage" "$srv/$archive/pool/$pool/${name}_${version}_all.deb" >/dev/null
	rm -rf "$stage"
}
put() { mkdir -p "$stage/$(dirname "$1")" && cat >"$stage/$1"; }
script() { { printf '#!/bin/sh\nset -e\n' && cat; } | put "DEBIAN/$1" && chmod 755 "$stage/DEBIAN/$1"; }
service() { # COMMAND of demo-svc
	printf '[Unit]\nDescription=Service of the tests\n[Service]\nExecStart=%s\n[Install]\nWantedBy=multi-user.target\n' "$1" | put lib/systemd/system/demo-svc.service
	script postinst <<-'END'
		systemctl --quiet enable demo-svc.service
		[ ! -d /run/systemd/system ] || { systemctl daemon-reload && systemctl restart demo-svc.service; } || true
	END
}

packages() {
	local name version pool
	for name in lib app point backport held shadow fail slow reboot new old repl; do deb base "demo-$name" 1.0; done
	deb security demo-lib 1.1
	deb updates demo-app 1.1
	deb base demo-point 1.1 # as a point release brings it
	deb backports demo-backport 1.1
	deb security demo-held 1.1
	deb thirdparty docker-demo 1.0
	deb thirdparty docker-demo 1.1
	deb security demo-shadow 1.1
	deb thirdparty demo-shadow 9.0 # a third party with a higher version of a package of the distribution

	for version in 1.0 1.1; do
		pool=base && [ $version = 1.0 ] || pool=security
		echo "shipped = $version" | put etc/demo-conf.conf
		echo /etc/demo-conf.conf | put DEBIAN/conffiles
		deb $pool demo-conf $version
	done

	script postinst <<<'[ -e /etc/demo-fail-ok ] || { echo "demo-fail: this machine is not to its liking" >&2; exit 1; }'
	deb security demo-fail 1.1
	script postinst <<-'END'
		seconds=$(cat /etc/demo-slow 2>/dev/null || echo 20)
		for second in $(seq "$seconds"); do
			echo "demo-slow: second $second of $seconds"
			sleep 1
		done
		date +%s >/run/demo-slow.done
	END
	deb security demo-slow 1.1
	script postinst <<<'touch /run/reboot-required && echo demo-reboot >>/run/reboot-required.pkgs'
	deb security demo-reboot 1.1

	service '/bin/sleep infinity' && deb base demo-svc 1.0
	service '/bin/sh -c "sleep 0.2; exit 3"' && deb security demo-svc 1.2 # it starts, and dies

	deb security demo-new 1.1 'Depends: demo-new-lib'
	deb security demo-new-lib 1.1
	deb security demo-repl 1.1 'Conflicts: demo-old'

	# A kernel as Debian has it: a package that only depends on the newest, and the hooks of /etc/kernel run by the image's own script.
	for version in 98 99; do
		pool=base && [ $version = 98 ] || pool=security
		name=6.1.0-$version-amd64
		echo kernel | put "boot/vmlinuz-$name"
		script postinst <<<"[ ! -d /etc/kernel/postinst.d ] || run-parts --exit-on-error --arg=$name --arg=/boot/vmlinuz-$name /etc/kernel/postinst.d"
		deb $pool "linux-image-$name" 6.1.$version-1
		deb $pool linux-image-amd64 6.1.$version-1 "Depends: linux-image-$name"
	done

	deb base demo-big 1.0
	mkdir -p "$stage/usr/share/demo-big" && head -c $((24 << 20)) /dev/urandom >"$stage/usr/share/demo-big/data"
	deb security demo-big 1.1 "Installed-Size: $((24 << 10))"
}

# release ARCHIVE POOL DIST SUITE CODENAME ORIGIN LABEL [FIELD...]: the signed index of a pool.
release() {
	local archive=$srv/$1 pool=$2 dist=dists/$3
	local fields=("Origin: $6" "Label: $7" "Suite: $4" "Codename: $5" 'Architectures: amd64' 'Components: main' "${@:8}")
	mkdir -p "$archive/$dist/main/binary-amd64" "$archive/pool/$pool"
	(
		cd "$archive"
		apt-ftparchive -qq packages "pool/$pool" >"$dist/main/binary-amd64/Packages"
		{ printf '%s\n' "${fields[@]}" && apt-ftparchive -qq release "$dist"; } >"$new.release"
		gpg --homedir "$gpg" --batch --yes --quiet --clearsign --output "$dist/InRelease" "$new.release"
	)
}

updates() { # SUITE: makes the layer in $new
	local suite=$1 moving=stable debian=debian security=debian-security pool dist
	local gpg=$new.gpg stage=$new.stage srv=$new/srv/guestlab
	local third=('NotAutomatic: yes' 'ButAutomaticUpgrades: yes')
	[ "$suite" != bookworm ] || moving=oldstable
	mkdir -p "$srv" "$new/etc/apt/keyrings" "$new/etc/apt/sources.list.d" "$new/var/lib/apt/lists/partial"
	mkdir -m 700 "$gpg"
	gpg --homedir "$gpg" --batch --quiet --passphrase '' --quick-gen-key 'guest lab <lab@example.invalid>' ed25519 sign 30d
	gpg --homedir "$gpg" --batch --quiet --armor --export >"$new/etc/apt/keyrings/guestlab.asc"
	packages
	release docker thirdparty "$suite" "$suite" "$suite" Docker 'Docker CE'
	if [ "$suite" = noble ]; then # the pockets differ by suite, not by codename
		debian=ubuntu security=ubuntu
		mkdir -p "$srv/ubuntu/pool"
		mv "$srv"/debian/pool/* "$srv"/debian-security/pool/* "$srv/ubuntu/pool/"
		rm -r "$srv/debian" "$srv/debian-security"
		release ubuntu base noble noble noble Ubuntu Ubuntu
		for pool in updates security; do release ubuntu $pool noble-$pool noble-$pool noble Ubuntu Ubuntu; done
		release ubuntu backports noble-backports noble-backports noble Ubuntu Ubuntu "${third[@]}"
	else
		release debian base "$suite" $moving "$suite" Debian Debian
		release debian updates "$suite-updates" $moving-updates "$suite-updates" Debian Debian
		release debian backports "$suite-backports" $moving-backports "$suite-backports" 'Debian Backports' 'Debian Backports' "${third[@]}"
		release debian-security security "$suite-security" $moving-security "$suite-security" Debian Debian-Security
	fi
	# Who asks whether an archive is signed by the distribution itself has to find that it is.
	mkdir -p "$new/usr/share/keyrings"
	gpg --homedir "$gpg" --batch --quiet --export >"$new/usr/share/keyrings/$debian-archive-keyring.gpg"
	gpgconf --homedir "$gpg" --kill all
	local from='deb [signed-by=/etc/apt/keyrings/guestlab.asc] file:/srv/guestlab'
	for dist in "$debian $suite" "$debian $suite-updates" "$debian $suite-backports" "$security $suite-security"; do echo "$from/$dist main"; done >"$new/etc/apt/sources.list"
	echo "$from/docker $suite main" >"$new/etc/apt/sources.list.d/docker.list"
}
