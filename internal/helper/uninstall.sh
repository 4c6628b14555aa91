# Takes away all that castellan left on this machine; what it installed from the distribution (sudo, sshd) stays.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
export PATH LC_ALL
unset IFS ENV CDPATH
state=/var/lib/castellan

line() { printf '%s\t%s\n' "$1" "$2" >&3; }
finish() { echo end >&3 && exit "$1"; }
refuse() { line refused "$1" && echo "castellan: $1" >&2 && finish 1; }
gone() { if [ -e "$1" ] || [ -L "$1" ]; then rm -rf "$1" && line removed "$1" || refuse "$1 cannot be removed"; fi; }

unenrol() {
	[ "$(id -u)" = 0 ] || refuse 'this takes root'
	if [ -s $state/run/began ] && [ ! -s $state/run/result ] && [ -x /usr/local/sbin/castellan-helper ] && /usr/local/sbin/castellan-helper status | grep -q '^running'; then
		refuse 'an installation is under way; wait for its end'
	fi
	# First what lets in, then the rest.
	[ ! -s $state/keys ] || gone "$(cat $state/keys)"
	gone $state/home
	gone /etc/sudoers.d/castellan
	if grep -q "^castellan:[^:]*:[^:]*:[^:]*:[^:]*:$state/home:" /etc/passwd; then
		if command -v userdel >/dev/null; then userdel castellan >&2; else deluser castellan >&2; fi || refuse 'the account castellan cannot be removed'
		line removed 'account castellan'
	fi
	for f in /usr/local/sbin/castellan-gate /usr/local/sbin/castellan-helper /etc/sudoers.d/castellan.new /etc/apt/apt.conf.d/99castellan $state; do gone $f; done
	finish 0
}
