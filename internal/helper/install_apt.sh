# ---- apt ----
known='it knows Debian 12 and 13, and Ubuntu from 22.04'
sshd_package=openssh-server

supported() {
	case $ID:$VERSION_ID in
	debian:12 | debian:13 | ubuntu:22.04 | ubuntu:22.10) ;;
	ubuntu:2[3-9].04 | ubuntu:2[3-9].10) ;;
	*) return 1 ;;
	esac
}

refresh_lists() { apt-get -q -o DPkg::Lock::Timeout=300 update; }
install_package() { DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold --no-install-recommends --no-remove install "$1"; }
make_account() { useradd --system --user-group --home-dir "$home" --no-create-home --shell /bin/sh --comment 'castellan looks after packages' "$account" >&2; }

automatic() {
	case $automatic in
	keep) return 0 ;;
	on) need unattended-upgrade unattended-upgrades ;;
	esac
	{
		echo '// Written by castellan, as was said at enrolment; removed with it.'
		case $automatic in
		on) echo 'APT::Periodic::Enable "1"; APT::Periodic::Update-Package-Lists "1"; APT::Periodic::Unattended-Upgrade "1";' ;;
		off) echo 'APT::Periodic::Unattended-Upgrade "0"; APT::Periodic::Download-Upgradeable-Packages "0";' ;;
		esac
	} | put /etc/apt/apt.conf.d/99castellan 644 || exit 1
	if [ "$automatic" = on ] && [ -d /run/systemd/system ]; then systemctl enable --now -q apt-daily.timer apt-daily-upgrade.timer >&2 || line note 'the timers of automatic updates cannot be switched on'; fi
}
