# ---- zypper ----
known='of its family it knows openSUSE Leap 15 and 16'
sshd_package=openssh-server

supported() {
	[ ! -x /usr/sbin/transactional-update ] && has zypper || return 1
	case $ID:$VERSION_ID in opensuse-leap:15.* | opensuse-leap:16.*) ;; *) return 1 ;; esac
}

refresh_lists() { zypper --non-interactive refresh; }
install_package() { zypper --non-interactive install --no-recommends "$1"; }
make_account() { getent group "$account" >/dev/null || groupadd --system "$account" >&2; useradd --system --gid "$account" --home-dir "$home" --no-create-home --shell /bin/sh --comment 'castellan looks after packages' "$account" >&2; }

automatic() {
	case $automatic in
	off) [ ! -e /etc/sysconfig/automatic_online_update ] || sed -i 's/^AOU_ENABLE_CRONJOB=.*/AOU_ENABLE_CRONJOB="false"/' /etc/sysconfig/automatic_online_update ;;
	on) line note 'castellan does not switch automatic updates on here: YaST does so (online update configuration)' ;;
	esac
}
