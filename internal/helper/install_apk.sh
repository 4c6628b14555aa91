# ---- apk ----
known='of its family it knows Alpine Linux 3 on a numbered branch'
sshd_package=openssh

supported() {
	has apk || return 1
	case $ID:$VERSION_ID in alpine:3.*_*) return 1 ;; alpine:3.*) ;; *) return 1 ;; esac
}

refresh_lists() { apk update; }
install_package() { apk add "$1"; }
make_account() { addgroup -S "$account" >&2 && adduser -S -D -H -h "$home" -s /bin/sh -G "$account" -g 'castellan looks after packages' "$account" >&2; }
automatic() { [ "$automatic" != on ] || line note 'Alpine Linux has no automatic updates of its own'; }
