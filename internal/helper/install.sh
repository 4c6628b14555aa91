# Lets castellan look after the packages of this machine: an account that its key opens for fixed words only, a helper that root
# runs for these words, and one line of sudoers between the two. Run it as root. Running it again replaces the key.
# Its report is on standard output; what else there is to see goes to standard error.
set -u
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
export PATH LC_ALL
unset IFS ENV CDPATH TMPDIR
tab=$(printf '\t')
home=$state/home

line() { k=$1 && shift && { printf '%s' "$k" && for v; do printf '\t%s' "${v:--}"; done | tr '\n' ' ' && echo; } >&3; }
finish() { echo end >&3 && exit "$1"; }
refuse() { line refused "$1" && echo "castellan: $1" >&2 && finish 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# put PATH MODE: what it reads becomes that file, whole or not at all.
put() {
	cat >"$1.new" && chmod "$2" "$1.new" && chown 0:0 "$1.new" && mv "$1.new" "$1" || { rm -f "$1.new" && refuse "$1 cannot be written"; }
}

# need COMMAND PACKAGE: installs what is missing.
need() {
	! has "$1" || return 0
	[ -n "${refreshed-}" ] || refreshed=$(refresh_lists >&2 && echo yes)
	install_package "$2" >&2 </dev/null && has "$1" || refuse "$2 is missing and cannot be installed"
	line installed "$2"
}

# What a family does in its own way; its part of this script says otherwise where it is.
automatic() { :; }

enrol() {
	[ "$(id -u)" = 0 ] || refuse 'this takes root'
	ID='' VERSION_ID='' VERSION_CODENAME='' PRETTY_NAME=''
	set +u
	[ -r /etc/os-release ] && . /etc/os-release
	set -u
	supported || refuse "castellan does not look after ${PRETTY_NAME:-this system} ($ID $VERSION_ID): $known"
	need sudo sudo
	need sshd "$sshd_package"
	for tool in flock setsid timeout awk; do has $tool || refuse "$tool is missing"; done

	mkdir -p "$state/log" "$home/.ssh" && chmod 755 "$state" "$home" "$home/.ssh" && chmod 700 "$state/log" && chown 0:0 "$state" "$home" "$home/.ssh" || refuse "$state cannot be written"
	if ! id -u "$account" >/dev/null 2>&1; then
		make_account || refuse "the account $account cannot be made"
	elif [ "$(id -u "$account")" = 0 ]; then
		refuse "the account $account is root"
	elif [ "$(getent passwd "$account" 2>/dev/null | cut -d : -f 6)" != "$home" ] && ! grep -q "^$account:[^:]*:[^:]*:[^:]*:[^:]*:$home:" /etc/passwd; then
		refuse "there is an account $account already that is not castellan's"
	fi
	# No password is the account's: not an empty one, and not "!" either, which would lock it for keys too.
	echo "$account:*" | chpasswd -e || refuse "the password of $account cannot be taken away"

	write_gate
	write_helper
	sudo_rule
	authorize
	automatic || refuse 'automatic updates cannot be set'
	/usr/local/sbin/castellan-helper status | grep -E "^(system|kind|virt|helper|automatic)$tab" >&3
	for f in /etc/ssh/ssh_host_*_key.pub; do
		[ -r "$f" ] && read -r type key rest <"$f" && line host-key "$type" "$key"
	done
	line account "$account"
	line port "$(sshd -T 2>/dev/null | sed -n 's/^port //p' | head -n 1 | grep . || echo 22)"
	finish 0
}

# sudo_rule writes the rule beside its place, where sudo does not read it (it leaves out names with a dot), and puts it in only when
# it is right: a broken rule would take sudo from everybody.
sudo_rule() {
	mkdir -p /etc/sudoers.d
	{
		echo '# Written by castellan: its account may have the helper run with one of these words, and nothing else.'
		echo "Defaults:$account env_reset, !requiretty, !use_pty, !log_input, !log_output, !mail_always"
		for word in $words; do echo "$account ALL = (root) NOPASSWD: /usr/local/sbin/castellan-helper $word"; done
	} >/etc/sudoers.d/castellan.new
	chmod 440 /etc/sudoers.d/castellan.new && chown 0:0 /etc/sudoers.d/castellan.new && visudo -cqf /etc/sudoers.d/castellan.new >&2 || {
		rm -f /etc/sudoers.d/castellan.new
		refuse 'sudo does not take the rule for castellan'
	}
	mv /etc/sudoers.d/castellan.new /etc/sudoers.d/castellan
	for word in $words; do
		sudo -n -l -U "$account" /usr/local/sbin/castellan-helper "$word" >/dev/null 2>&1 || {
			rm -f /etc/sudoers.d/castellan
			refuse 'sudo does not go by /etc/sudoers.d'
		}
	done
	if [ "$(sudo -n -l -U "$account" 2>/dev/null | grep -c '^ *(')" != "$(echo $words | wc -w)" ]; then line note "sudo allows $account more than castellan asked for: see sudo -l -U $account"; fi
}

# authorize writes the key where this sshd looks for it. Folder and file are root's, so that the account cannot change them.
authorize() {
	mkdir -p /run/sshd
	where=$(sshd -T -C "user=$account,host=localhost,addr=$address" 2>/dev/null | sed -n 's/^authorizedkeysfile //p' | cut -d ' ' -f 1)
	keys=$(echo "${where:-.ssh/authorized_keys}" | sed "s#%h#$home#g; s#%u#$account#g; s#%%#%#g")
	case $keys in /*) ;; *) keys=$home/$keys ;; esac
	case $keys in "$home"/.ssh/* | /etc/ssh/*"$account"*) ;; *) refuse "sshd looks for the keys of $account in $keys, where castellan does not write" ;; esac
	mkdir -p "${keys%/*}"
	printf '%s\n' "$authorized" | put "$keys" 644 || exit 1
	[ "$keys" = "$home/.ssh/authorized_keys" ] || echo "$keys" | put "$state/keys" 600 || exit 1
	sshd -T -C "user=$account,host=localhost,addr=$address" 2>/dev/null | grep -E '^(allowusers|allowgroups|denyusers|denygroups|pubkeyauthentication no|forcecommand [^n])' | while read -r rule; do
		line note "sshd may keep castellan out: $rule"
	done
}
