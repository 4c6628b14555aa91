# ---- dnf ----
known='of its family it knows Fedora from 40, and RHEL, Rocky Linux, AlmaLinux, CentOS Stream and Oracle Linux 8 to 10'
sshd_package=openssh-server

supported() {
	[ ! -e /run/ostree-booted ] && has dnf || return 1
	case $ID:$VERSION_ID in
	fedora:4[0-9] | fedora:5[0-9]) ;;
	rhel:8.* | rhel:9.* | rhel:10.* | rocky:8.* | rocky:9.* | rocky:10.* | almalinux:8.* | almalinux:9.* | almalinux:10.* | ol:8.* | ol:9.* | ol:10.*) ;;
	centos:9 | centos:10) ;;
	*) return 1 ;;
	esac
}

refresh_lists() { :; } # dnf does so where it must
install_package() { dnf -y install "$1"; }
make_account() { useradd --system --user-group --home-dir "$home" --no-create-home --shell /bin/sh --comment 'castellan looks after packages' "$account" >&2; }

automatic() {
	case $automatic in
	keep) ;;
	off)
		for timer in dnf-automatic.timer dnf-automatic-install.timer dnf-automatic-download.timer dnf5-automatic.timer; do
			! systemctl is-enabled -q "$timer" 2>/dev/null || systemctl disable --now -q "$timer" >&2 || return 1
		done
		;;
	on)
		rpm -q --whatprovides dnf-automatic >/dev/null 2>&1 || { install_package dnf-automatic >&2 </dev/null && line installed dnf-automatic; } || return 1
		# The timer that installs whatever the configuration says is there with dnf 4 only.
		if systemctl cat dnf-automatic-install.timer >/dev/null 2>&1; then
			systemctl enable --now -q dnf-automatic-install.timer >&2
		else
			line note 'dnf5-automatic goes by /etc/dnf/automatic.conf: say apply_updates = yes there and enable dnf5-automatic.timer'
		fi
		;;
	esac
}
