# Fedora, RHEL and its rebuilds, with dnf 4 or 5.
#
# Official are repositories of the distribution's own names whose packages must be signed with keys that a package of the
# distribution itself owns. Nothing else is asked during an installation, and of an official repository dnf is shown only the
# exact versions that were asked for (includepkgs), so that nothing else can come in.

fam_name() { echo dnf; }

fam_removes() { echo yes; }

fam_lock() { rpm_lock /run/dnf/rpmtransaction.lock; }

# dnf_settings prints "id<TAB>gpgcheck<TAB>gpgkeys" of all repositories that are switched on.
dnf_settings() (
	for file in /etc/dnf/dnf.conf /etc/yum.repos.d/*.repo /etc/yum/repos.d/*.repo /etc/distro.repos.d/*.repo /usr/share/dnf5/repos.d/*.repo \
		/usr/share/dnf5/repos.override.d/*.repo /etc/dnf/repos.override.d/*.repo; do
		[ ! -f "$file" ] || { cat "$file" && echo; }
	done | awk '
		/^[ \t]*[#;]/ { next }
		/^\[/ { id = $0; sub(/^\[/, "", id); sub(/\].*/, "", id); key = ""; if (id != "main") seen[id] = 1; next }
		/^[ \t]/ { if (key == "gpgkey") keys[id] = keys[id] " " $0; next }
		/=/ {
			key = value = $0
			sub(/[ \t]*=.*/, "", key); sub(/^[^=]*=[ \t]*/, "", value); sub(/[ \t\r]*$/, "", value)
			if (key == "gpgkey") keys[id] = value
			if (key == "enabled") on[id] = tolower(value)
			if (key == "gpgcheck" || key == "pkg_gpgcheck") check[id] = tolower(value)
		}
		END {
			for (id in seen) {
				if (id in on && on[id] !~ /^(1|yes|true|on)$/) continue
				c = id in check ? check[id] : check["main"]
				gsub(/[ \t,]+/, " ", keys[id])
				print id "\t" (c ~ /^(1|yes|true|on)$/) "\t" keys[id]
			}
		}'
)

# dnf_known ID: whether the distribution has a repository of that name.
dnf_known() (
	case $ID in
	fedora) names='fedora|updates|fedora-modular|updates-modular|fedora-cisco-openh264' ;;
	rhel) names='rhel-[0-9]+-for-[a-z0-9_]+-(baseos|appstream|highavailability)-[a-z0-9-]*rpms|codeready-builder-for-rhel-[0-9]+-[a-z0-9_]+-rpms|rhel-[0-9]+-(baseos|appstream)-rhui-rpms' ;;
	rocky | almalinux | centos) names='baseos|appstream|extras|extras-common|crb|powertools|highavailability|ha|resilientstorage|nfv|rt|security' ;;
	ol) names='ol[0-9]+_(baseos_latest|appstream|codeready_builder|UEKR[0-9]+)' ;;
	*) return 1 ;;
	esac
	echo "$1" | grep -qEx "$names"
)

# dnf_sources writes the repositories that are switched on to $tmp/official and to $tmp/foreign, with why.
dnf_sources() {
	. /etc/os-release
	dnf_settings | sort >"$tmp/settings"
	cut -f 1 "$tmp/settings" >"$tmp/enabled"
	: >"$tmp/official"
	: >"$tmp/foreign"
	while read -r repo; do
		why=$(dnf_foreign "$repo")
		if [ -z "$why" ]; then echo "$repo" >>"$tmp/official"; else printf '%s\t%s\n' "$repo" "$why" >>"$tmp/foreign"; fi
	done <"$tmp/enabled"
}

# dnf_foreign REPOSITORY prints why it is not the distribution's; nothing where it is.
dnf_foreign() (
	dnf_known "$1" || { echo "no repository of $ID has this name"; return; }
	line=$(awk -F '\t' -v id="$1" '$1 == id' "$tmp/settings")
	[ "$(printf %s "$line" | cut -f 2)" = 1 ] || { echo "its packages need not be signed"; return; }
	keys=$(printf %s "$line" | cut -f 3)
	[ -n "$keys" ] || { echo "it names no key"; return; }
	for key in $(set -f; echo $keys); do
		case $key in file:///*) ;; *) echo "its key is not a file of this system"; return ;; esac
		# $releasever and the like stand for whatever is there.
		for file in $(echo "${key#file://}" | sed 's/\${[^}]*}/*/g; s/\$[A-Za-z0-9_]*/*/g'); do
			owner=$(rpm -qf --qf '%{NAME}\n' "$file" 2>/dev/null | head -1)
			case $owner in
			fedora-gpg-keys | fedora-repos | rocky-gpg-keys | rocky-release | almalinux-gpg-keys | almalinux-release | centos-gpg-keys | centos-stream-release) ;;
			redhat-release | oraclelinux-release | oraclelinux-release-el*) ;;
			*) echo "its key $file is of no package of the distribution"; return ;;
			esac
		done
	done
)

# dnf_with MODE COMMAND [OPTION...]: runs dnf on the official repositories with the metadata that is there.
dnf_with() (
	mode=$1
	shift
	[ "$mode" != security ] || set -- "$@" --security
	dnf --setopt=best=0 --setopt='*.skip_if_unavailable=0' --setopt='*.metadata_expire=-1' $(sed 's/^/--repo=/' "${repos:-$tmp/official}") "$@"
)

# dnf_plan MODE [OPTION...] prints what an upgrade would do: CHANGE<TAB>BYTES. It fails where dnf does not say; $tmp/err holds why.
# What castellan does not do is printed as "odd<TAB>what".
dnf_plan() (
	[ -s "${repos:-$tmp/official}" ] || { echo "no repository of the distribution is switched on" >"$tmp/err"; return 1; }
	mode=$1
	shift
	dnf_with "$mode" -C --assumeno upgrade "$@" >"$tmp/table" 2>"$tmp/err" </dev/null
	cat "$tmp/err" >>"$tmp/table"
	if ! grep -qE '^Transaction Summary' "$tmp/table"; then
		grep -qE '^(Nothing to do|No security updates needed)' "$tmp/table" && ! grep -qE '^(Error|Problem|Failed)' "$tmp/table"
		return
	fi
	awk -v id="$ID" '
		function size(n, unit) {
			if (unit ~ /^k/ || unit ~ /^Ki/) return n * 1024
			if (unit ~ /^M/) return n * 1048576
			if (unit ~ /^G/) return n * 1073741824
			return n
		}
		function done(   bytes) {
			if (n < 4) { n = 0; return }
			sub(/^0:/, "", t[3])
			bytes = n > 5 ? size(t[5], t[6]) : t[5]
			if (action == "skip") print "skip\t" t[1] "\t" t[2] "\t" t[3]
			else if (action == "remove") print "remove\t" t[1] "\t" t[2] "\t" t[3] "\t-\t0"
			else printf "%s\t%s\t%s\t%s\t%s:%s\t%d\n", action, t[1], t[2], t[3], id, t[4], bytes
			parent = t[1]
			n = 0
		}
		/^ ?Package / { table = 1; next }
		/^Transaction Summary/ { done(); exit }
		!table || /^=/ || /^\(/ { next }
		/^[A-Z].*:$/ {
			done()
			if (/^Upgrading:/) action = "upgrade"
			else if (/^Installing/) action = "install"
			else if (/^Removing/) action = "remove"
			else if (/^Skipping/) action = "skip"
			else { action = "skip"; sub(/:$/, ""); print "odd\tdnf would also do this: " $0 }
			next
		}
		$1 == "replacing" {
			done()
			if (NF == 3) { name = arch = $2; sub(/\.[^.]*$/, "", name); sub(/^.*\./, "", arch); v = $3 } else { name = $2; arch = $3; v = $4 }
			sub(/^0:/, "", v)
			if (name != parent) print "remove\t" name "\t" arch "\t" v "\t-\t0"
			next
		}
		/^ [^ ]/ { done() }
		{ for (i = 1; i <= NF; i++) t[++n] = $i }' "$tmp/table" >"$tmp/rows"
	grep '^odd' "$tmp/rows"
	awk -F '\t' '$1 == "upgrade" || $1 == "install" || $1 == "remove"' "$tmp/rows" | rpm_changes
)

# dnf_why prints what dnf said when it could not do something, on one line.
dnf_why() { grep -hE '^ *(Error|Problem|Failed|- |Cannot|no repository|Curl)' "$tmp/err" "$tmp/table" 2>/dev/null | tr '\t\n' '  ' | cut -c1-300; }

# dnf_pending REPOSITORIES prints "name arch version repository bytes", columns set apart by tabs, of all that is newer, whatever holds it.
dnf_pending() {
	dnf -q -C --disableplugin=versionlock --setopt='disable_excludes=all,*' $(sed 's/^/--repo=/' "$1") repoquery --upgrades --latest-limit=1 \
		--qf '%{name}	%{arch}	%{evr}	%{repoid}	%{downloadsize}
' 2>"$tmp/err" | grep . | sort -u
}

# dnf_refresh LIST reads the metadata of the repositories of a list anew. None of them may be left out.
dnf_refresh() { dnf --refresh --setopt='*.skip_if_unavailable=0' $(sed 's/^/--repo=/' "$tmp/$1") makecache >"$tmp/table" 2>"$tmp/err" </dev/null; }

fam_check() (
	dnf_sources
	cut -f 1 "$tmp/foreign" >"$tmp/third"
	if [ ! -s "$tmp/official" ]; then
		printf 'stale\tno repository of the distribution is switched on%s\n' "$(head -1 "$tmp/foreign" | sed 's/\t/: /; s/^/; /')"
	elif dnf_refresh enabled; then
		printf 'fresh\tyes\n'
	elif ! dnf_refresh official; then
		printf 'stale\t%s\n' "$(dnf_why)"
	else
		printf 'fresh\tyes\n'
		dnf_refresh third || printf 'unread\tthe repositories of third parties: %s\n' "$(dnf_why)"
	fi
	[ -z "${SUPPORT_END:-}" ] || [ "$(date +%s)" -lt "$(date -d "$SUPPORT_END" +%s)" ] || printf 'eol\t%s gets no more updates since %s, as it says itself\n' "$NAME" "$SUPPORT_END"
	for mode in all security; do
		if dnf_plan $mode >"$tmp/$mode"; then
			awk -F '\t' -v mode=$mode '$1 == "odd" { print "unread\t" $2 }' "$tmp/$mode"
		else
			printf 'stale\twhat mode %s would do is not known: %s\n' $mode "$(dnf_why)"
			: >"$tmp/$mode"
		fi
		sed -i '/^odd\t/d' "$tmp/$mode"
	done
	# Without advisories nothing is known to be a security update, and nothing known not to be.
	if [ ! -s "$tmp/security" ] && [ "$ID" != centos ] && ! dnf_with all -q -C updateinfo list --all 2>/dev/null | grep -qv '^Name '; then
		printf 'unread\twhich updates are security updates: the repositories have no advisories, so mode security has nothing to go by\n'
	fi
	awk -F '\t' -v OFS='\t' '{ print "security", $1, 1, $2 }' "$tmp/security"
	awk -F '\t' -v OFS='\t' -v file="$tmp/security" 'BEGIN { while ((getline line <file) > 0) { sub(/\t.*/, "", line); s[line] = 1 } } { print "all", $1, ($1 in s) + 0, $2 }' "$tmp/all"
	: >"$tmp/pending"
	[ ! -s "$tmp/official" ] || dnf_pending "$tmp/official" | sed 's/^/official\t/' >>"$tmp/pending"
	[ ! -s "$tmp/third" ] || dnf_pending "$tmp/third" | sed 's/^/third_party\t/' >>"$tmp/pending"
	: >"$tmp/seen"
	: >"$tmp/advised"
	# Something is left out: what is hidden from dnf is held, and whether it is a security update the advisories tell.
	if awk -F '[ \t]' -v all="$tmp/all" '
		BEGIN { while ((getline line <all) > 0) { split(line, p, /[ :\t]/); will[p[2]] = 1 } } $1 == "official" && !($2 in will) { left = 1 } END { exit !left }' "$tmp/pending"; then
		dnf_with all -q -C repoquery --upgrades --qf '%{name} %{evr}
' 2>/dev/null >"$tmp/seen"
		dnf -q -C --disableplugin=versionlock --setopt='disable_excludes=all,*' $(sed 's/^/--repo=/' "$tmp/official") updateinfo list --security >"$tmp/advised" 2>/dev/null
	fi
	awk -F '\t' -v OFS='\t' -v id="$ID" -v now="$tmp/now" -v all="$tmp/all" -v security="$tmp/security" -v seen="$tmp/seen" -v advised="$tmp/advised" '
		BEGIN {
			while ((getline <now) > 0) old[$1 ":" $2] = $3
			while ((getline line <all) > 0) { split(line, p, /[ \t]/); will[p[2] " " p[4]] = 1 }
			while ((getline line <security) > 0) { split(line, p, /[ \t]/); sec[p[2] " " p[4]] = 1 }
			while ((getline line <seen) > 0) shown[line] = 1
			while ((getline line <advised) > 0) { k = split(line, p, " "); for (i = 1; i <= k; i++) advice[p[i]] = 1 }
		}
		{
			key = $2 ":" $3; v = $4; sub(/^0:/, "", v)
			sort = $1; why = "-"; note = "-"
			if (sort == "official" && (key " " v in sec || $2 "-" v "." $3 in advice)) sort = "security"
			if (sort == "third_party") { why = "third_party"; note = "repository " $5 }
			else if (!(key " " v in will)) {
				if ($2 " " $4 in shown) { why = "needs_other"; note = "dnf leaves it out: what it needs is not to be had, or stands against it" }
				else { why = "held"; note = "excluded, or locked to a version" }
			}
			print "pending", $2, $3, (key in old ? old[key] : "-"), v, id ":" $5, sort, why, note
		}' "$tmp/pending"
	dnf_space "$tmp/all"
)

# dnf_space FILE prints space for the changes in it.
dnf_space() (
	bytes=$(awk -F '\t' '{ n += $2 } END { printf "%d", n }' "$1")
	# Fetched, unpacked beside the old version, and room to spare.
	space_line / $((bytes * 5 + 50000000))
	[ "$(df -P /var/cache | awk 'END { print $6 }')" = / ] || space_line /var/cache $((bytes + 20000000))
	case $(cut -f 1 "$1") in *"install kernel"*) [ "$(df -P /boot | awk 'END { print $6 }')" = / ] || space_line /boot 120000000 ;; esac
)

space_line() { printf 'space\t%s\t%s\t%s\n' "$1" "$(df -Pk "$1" | awk 'END { printf "%.0f", $4 * 1024 }')" "$2"; }

# dnf_exact writes to $run/options what lets dnf see of each repository only the versions that are asked for there, and to $run/repos
# the repositories. It prints what of $run/asked cannot be.
dnf_exact() (
	. /etc/os-release
	awk -v id="$ID" '
		$1 != "remove" {
			repo = $5; sub(/^[^:]*:/, "", repo)
			if ($5 != id ":" repo) { print $2 " comes from " $5 ", which is no repository of this system"; next }
			name = arch = $2; sub(/:[^:]*$/, "", name); sub(/^.*:/, "", arch)
			list[repo] = list[repo] (repo in list ? "," : "") name "-" $4 "." arch
		}
		END {
			for (r in list) {
				if (length(list[r]) > 120000) print "so many packages of repository " r " cannot be asked for at once"
				print "--setopt=" r ".includepkgs=" list[r] >"'"$run"'/options"
				print r >"'"$run"'/repos"
			}
		}' "$run/asked"
	for repo in $(cat "$run/repos"); do
		grep -qFx "$repo" "$tmp/official" || printf 'repository %s is not one of the distribution: %s\n' "$repo" \
			"$(awk -F '\t' -v id="$repo" '$1 == id { print $2; found = 1 } END { if (!found) print "it is switched off" }' "$tmp/foreign")"
	done
)

fam_ready() (
	dnf_sources
	if ! dnf_refresh official; then
		printf 'the package lists could not be refreshed: %s\n' "$(dnf_why)"
		return
	fi
	if [ "$(cat "$run/newer" 2>/dev/null)" = 1 ]; then
		dnf_newer "$1"
	fi
	: >"$run/options"
	: >"$run/repos"
	stale=$(dnf_exact)
	if [ -n "$stale" ]; then
		printf '%s\n' "$stale"
		return
	fi
	repos=$run/repos
	if ! dnf_plan "$1" $(cat "$run/options") >"$tmp/would"; then
		printf 'dnf does not say what it would do: %s\n' "$(dnf_why)"
		return
	fi
	sed -n 's/^odd\t//p' "$tmp/would"
	sed '/^odd\t/d; s/\t.*//' "$tmp/would" | sort >"$tmp/will"
	sort "$run/asked" >"$tmp/asked"
	comm -23 "$tmp/asked" "$tmp/will" | sed 's/^/it would not do: /' | head -50
	comm -13 "$tmp/asked" "$tmp/will" | sed 's/^/it would also do: /' | head -50
)

# dnf_newer writes newer versions of what is asked for into $run/asked where the same repository offers them now.
dnf_newer() (
	dnf_plan "$1" >"$tmp/newer" || return 0
	awk -F '[ \t]' -v newer="$tmp/newer" '
		BEGIN { while ((getline <newer) > 0) now[$1 " " $2 " " $3 " " $5] = $4 }
		{ key = $1 " " $2 " " $3 " " $5; print $1, $2, $3, (key in now ? now[key] : $4), $5 }' "$run/asked" >"$run/asked.new" && mv "$run/asked.new" "$run/asked"
)

fam_fetch() (
	repos=$run/repos
	dnf_with "$1" -y upgrade --downloadonly $(cat "$run/options") >"$tmp/table" 2>"$tmp/err" </dev/null || echo "the packages could not be fetched: $(dnf_why)"
)

fam_install() (
	repos=$run/repos
	dnf_with "$1" -y upgrade $(cat "$run/options") </dev/null
	code=$?
	[ $code = 0 ] || grep -A 3 -E '^(Error|Transaction failed|Failed)' "$run/log" | head -20 >"$run/stopped"
	return $code
)

# What stopped half way left the new version beside the old one: it is put in place once more, then the old one goes.
fam_repair() (
	dnf_sources
	rpm_twice | awk -F '\t' '{ last[$1 "\t" $2] = $3 } END { for (p in last) { split(p, q, "\t"); print q[1] "-" last[p] "." q[2] } }' >"$tmp/again"
	[ ! -s "$tmp/again" ] || dnf_with all -y reinstall $(cat "$tmp/again") </dev/null || echo 'castellan: what was interrupted could not be put in place again; its old versions are removed all the same'
	rpm_finish
)

fam_kept() { rpm_kept; }

fam_reboot() (
	dnf -q -C needs-restarting -r >"$tmp/reboot" 2>"$tmp/err" </dev/null
	code=$?
	if [ $code = 0 ]; then
		printf 'reboot\tno\n'
		return
	fi
	sed -n 's/^ *\* //p' "$tmp/reboot" | sort -u >"$tmp/parts"
	if [ $code != 1 ] || [ ! -s "$tmp/parts" ]; then # it is a plugin that may be missing
		rpm_after_boot kernel kernel-core kernel-rt glibc linux-firmware systemd dbus dbus-broker dbus-daemon microcode_ctl >"$tmp/parts"
	fi
	# A container runs its host's kernel, so that those of its own need no reboot.
	[ "$(virt)" != container ] || sed -i '/^kernel/d; /^linux-firmware$/d; /^microcode_ctl$/d' "$tmp/parts"
	if [ -s "$tmp/parts" ]; then sed 's/^/reboot\tyes\t/; s/$/ was updated since the start/' "$tmp/parts"; else printf 'reboot\tno\n'; fi
)

fam_automatic() (
	for timer in dnf-automatic-install.timer dnf-automatic.timer dnf5-automatic.timer dnf-automatic-download.timer; do
		systemctl is-enabled --quiet "$timer" 2>/dev/null || continue
		case $timer in
		*-install.timer) state=on ;;
		*-download.timer) state=download ;;
		*)
			state=$(cat /usr/share/dnf5/dnf5-plugins/automatic.conf /etc/dnf/dnf5-plugins/automatic.conf /etc/dnf/automatic.conf 2>/dev/null |
				sed -n 's/^ *\(apply_updates\|download_updates\) *= *\([^ ]*\).*/\1 \2/p' |
				awk '{ on[$1] = tolower($2) ~ /^(yes|1|true|on)$/ } END { print on["apply_updates"] ? "on" : on["download_updates"] ? "download" : "off" }')
			;;
		esac
		printf 'automatic\t%s\t%s\n' "$state" "${timer%.timer}"
		return
	done
	printf 'automatic\toff\n'
)
