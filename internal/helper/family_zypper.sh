# openSUSE Leap, with zypper.
#
# Official are repositories of the distribution's own names whose index is signed with a key that its package of keys owns. zypper
# is given a folder with these repositories alone (--reposd-dir), so that no other can be asked. What is installed is named with
# its exact version, and looked at by a dry run with the same lists just before.

fam_name() { echo zypper; }
fam_removes() { echo yes; }

fam_lock() {
	pid=$(cat /run/zypp.pid 2>/dev/null)
	if [ -n "$pid" ] && [ -d "/proc/$pid" ] && grep -qE 'zypp|packagekit|yast|y2base|ruby' "/proc/$pid/comm"; then lock_line "$pid"; else rpm_lock; fi
}

# zyp NAME ARGUMENT...: zypper with the repositories in $tmp/NAME alone, and the lists as they are.
zyp() {
	zyp_set=$1
	shift
	ZYPP_LOCK_TIMEOUT=60 zypper --reposd-dir "$tmp/$zyp_set" --no-refresh --non-interactive "$@" </dev/null
}

# zyp_sources sorts what is switched on into the folders $tmp/official and $tmp/foreign, a file each; $tmp/why tells why not.
zyp_sources() {
	mkdir -p "$tmp/official" "$tmp/foreign" "$tmp/split"
	: >"$tmp/why"
	for file in /etc/zypp/repos.d/*.repo; do
		[ ! -f "$file" ] || { cat "$file" && echo; }
	done | awk -v dir="$tmp/split" '
		/^\[/ { id = $0; sub(/^\[/, "", id); sub(/\].*/, "", id); file = id ~ /^[A-Za-z0-9][A-Za-z0-9_.:+@-]*$/ ? dir "/" id ".repo" : "/dev/null"; print "[" id "]\nname=" id >file; next }
		id == "" || /^name *=/ { next }
		{ print >file }'
	for file in "$tmp"/split/*.repo; do
		[ -f "$file" ] && grep -qE '^enabled *= *(1|yes|true|on)' "$file" || continue
		repo=${file##*/}
		repo=${repo%.repo}
		if ! echo "$repo" | grep -qEx '(openSUSE:)?repo-(oss|non-oss|update|update-oss|update-non-oss|sle-update|backports-update|openh264)'; then
			why="no repository of $ID has this name"
		elif grep -qE '^(gpgcheck|repo_gpgcheck|pkg_gpgcheck) *= *(0|no|false|off)' "$file"; then
			why='it need not be signed'
		else
			why=
		fi
		if [ -z "$why" ]; then mv "$file" "$tmp/official/"; else printf '%s\t%s\n' "$repo" "$why" >>"$tmp/why" && mv "$file" "$tmp/foreign/"; fi
	done
}

# zyp_signed takes those out of the official ones whose index is not signed with a key of the distribution, and says so.
zyp_signed() {
	mkdir -p -m 700 "$tmp/gpg"
	for file in $(rpm -ql openSUSE-build-key suse-build-key 2>/dev/null | grep -E '\.(asc|key)$|GPG-KEY'); do
		[ ! -f "$file" ] || gpg --homedir "$tmp/gpg" --batch --quiet --import "$file" 2>/dev/null
	done
	for file in "$tmp"/official/*.repo; do
		[ -f "$file" ] || continue
		repo=${file##*/}
		repo=${repo%.repo}
		index=/var/cache/zypp/raw/$repo/repodata/repomd.xml
		gpg --homedir "$tmp/gpg" --batch --quiet --verify "$index.asc" "$index" 2>/dev/null && continue
		echo "the index of $repo is not signed with a key of the distribution"
		mv "$file" "$tmp/foreign/"
	done
	gpgconf --homedir "$tmp/gpg" --kill all 2>/dev/null
}

# zyp_refresh reads all official lists anew; prints why it could not.
zyp_refresh() {
	zyp_sources
	if ! ls "$tmp"/official/*.repo >/dev/null 2>&1; then
		echo "no repository of the distribution is switched on"
	elif ! ZYPP_LOCK_TIMEOUT=60 zypper --reposd-dir "$tmp/official" --non-interactive refresh >"$tmp/table" 2>&1 </dev/null; then
		echo "the package lists could not be refreshed: $(zyp_why)"
	else
		zyp_signed
	fi
}

zyp_why() { grep -E 'rror|roblem|annot|nvalid|ailed|not ' "$tmp/table" | sed 's/<[^>]*>//g' | tr '\t\n' '  ' | cut -c1-300; }

# zyp_plan COMMAND...: what it would do: CHANGE<TAB>BYTES, or "odd<TAB>what".
zyp_plan() {
	zyp_command=$1
	shift
	zyp official --xmlout "$zyp_command" --dry-run --details --auto-agree-with-licenses "$@" >"$tmp/table" 2>&1
	case $? in 0 | 100 | 101 | 102 | 103) ;; *) return 1 ;; esac
	! grep -q '<message type="error"' "$tmp/table" || return 1
	sed -n 's/.*<install-summary download-size="\([0-9]*\)".*/\1/p' "$tmp/table" >"$tmp/bytes"
	sed 's/<solvable /\n&/g' "$tmp/table" | awk -v id="$ID" '
		function attr(name,   at) {
			at = index($0, " " name "=\"")
			if (!at) return ""
			at = substr($0, at + length(name) + 3)
			return substr(at, 1, index(at, "\"") - 1)
		}
		/<to-[a-z-]*>/ { what = $0; sub(/.*<to-/, "", what); sub(/>.*/, "", what) }
		/^<solvable type="package"/ {
			action = what == "upgrade" ? "upgrade" : what == "install" ? "install" : what == "remove" ? "remove" : ""
			if (action == "") { print "odd\tzypper would also " what " " attr("name"); next }
			edition = attr("edition")
			sub(/^0:/, "", edition)
			print action "\t" attr("name") "\t" attr("arch") "\t" edition "\t" (action == "remove" ? "-" : id ":" attr("repository")) "\t0"
		}' >"$tmp/rows"
	grep '^odd' "$tmp/rows"
	grep -v '^odd' "$tmp/rows" | rpm_changes
}

# zyp_pending NAME prints "name arch old new repository" of what the repositories in a folder have that is newer.
zyp_pending() {
	ls "$tmp/$1"/*.repo >/dev/null 2>&1 || return 0
	zyp "$1" --xmlout list-updates -a 2>/dev/null | sed 's/<update /\n&/g' | sed -n '/^<update kind="package"/p' | awk '
		function attr(name,   at) {
			at = index($0, " " name "=\"")
			if (!at) return ""
			at = substr($0, at + length(name) + 3)
			return substr(at, 1, index(at, "\"") - 1)
		}
		{ print attr("name") "\t" attr("arch") "\t" attr("edition-old") "\t" attr("edition") "\t" attr("alias") }'
}

fam_check() (
	. /etc/os-release
	why=$(zyp_refresh)
	if [ -n "$why" ]; then printf '%s\n' "$why" | lines stale; else printf 'fresh\tyes\n'; fi
	for mode in all security; do
		if [ $mode = all ]; then set -- update; else set -- patch --category security --skip-not-applicable-patches; fi
		if zyp_plan "$@" >"$tmp/$mode"; then
			sed -n 's/^odd\t/unread\t/p' "$tmp/$mode"
		else
			printf 'stale\twhat mode %s would do is not known: %s\n' $mode "$(zyp_why)"
			: >"$tmp/$mode"
		fi
		sed -i '/^odd\t/d' "$tmp/$mode"
		[ $mode != all ] || cp "$tmp/bytes" "$tmp/total"
	done
	awk -F '\t' -v OFS='\t' '{ print "security", $1, 1, "-" }' "$tmp/security"
	awk -F '\t' -v OFS='\t' -v file="$tmp/security" 'BEGIN { while ((getline line <file) > 0) { sub(/\t.*/, "", line); s[line] = 1 } } { print "all", $1, ($1 in s) + 0, "-" }' "$tmp/all"
	zypper --non-interactive locks 2>/dev/null | awk -F '|' 'NR > 2 && NF > 2 { gsub(/^ +| +$/, "", $2); print $2 }' >"$tmp/locks"
	zyp_held | tee "$tmp/held"
	{ zyp_pending official | sed 's/^/official\t/'; zyp_pending foreign | sed 's/^/third_party\t/'; } | awk -F '\t' -v OFS='\t' -v id="$ID" -v all="$tmp/all" -v security="$tmp/security" -v held="$tmp/held" '
		BEGIN {
			while ((getline line <all) > 0) { split(line, p, /[ \t]/); will[p[2] " " p[4]] = 1 }
			while ((getline line <security) > 0) { split(line, p, /[ \t]/); sec[p[2] " " p[4]] = 1 }
			while ((getline line <held) > 0) { split(line, p, "\t"); said[p[2] " " p[5]] = 1 }
		}
		$1 == "official" && ($2 " " $5) in said { next }
		{
			sort = $1; why = note = "-"
			if (sort == "third_party") { why = sort; note = "repository " $6 }
			else if (($2 ":" $3 " " $5) in sec) sort = "security"
			else if (!(($2 ":" $3 " " $5) in will)) { why = "needs_other"; note = "zypper leaves it out" }
			print "pending", $2, $3, $4, $5, id ":" $6, sort, why, note
		}'
	space=$(cat "$tmp/total")
	printf 'space\t/\t%s\t%s\n' "$(df -Pk / | awk 'END { printf "%.0f", $4 * 1024 }')" $((${space:-0} * 5 + 50000000))
)

# zyp_held prints what is newer and locked.
zyp_held() {
	while read -r lock; do
		case $lock in *[!A-Za-z0-9+._*?-]* | '') continue ;; esac
		zyp official --xmlout search --details --match-exact --type package "$lock" 2>/dev/null
	done <"$tmp/locks" | sed 's/<solvable /\n&/g' | awk -v OFS='\t' -v id="$ID" '
		function attr(name,   at) {
			at = index($0, " " name "=\"")
			if (!at) return ""
			at = substr($0, at + length(name) + 3)
			return substr(at, 1, index(at, "\"") - 1)
		}
		/^<solvable / {
			name = attr("name")
			if (attr("status") == "installed") { old[name] = attr("edition"); arch[name] = attr("arch") }
			else if (!(name in new)) { new[name] = attr("edition"); repo[name] = attr("repository") }
		}
		END { for (name in new) if (name in old && new[name] != old[name]) print "pending", name, arch[name], old[name], new[name], id ":" repo[name], "official", "held", "locked (zypper locks)" }'
}

fam_ready() (
	. /etc/os-release
	why=$(zyp_refresh)
	if [ -n "$why" ]; then
		printf '%s\n' "$why"
		return
	fi
	if [ "$1" = all ]; then set -- all update; else set -- security patch --category security --skip-not-applicable-patches; fi
	mode=$1
	shift
	if ! zyp_plan "$@" >"$tmp/now_would"; then
		echo "what mode $mode would do is not known: $(zyp_why)"
		return
	fi
	if [ "$(cat "$run/newer" 2>/dev/null)" = 1 ]; then
		awk -v newer="$tmp/now_would" '
			BEGIN { while ((getline line <newer) > 0) { split(line, p, /[ \t]/); now[p[1] " " p[2] " " p[3] " " p[5]] = p[4] } }
			{ key = $1 " " $2 " " $3 " " $5; print $1, $2, $3, (key in now ? now[key] : $4), $5 }' "$run/asked" >"$run/asked.new" && mv "$run/asked.new" "$run/asked"
	fi
	sort "$run/asked" >"$tmp/asked"
	if [ "$mode" = security ]; then
		sed 's/\t.*//' "$tmp/now_would" | sort | comm -23 "$tmp/asked" - | sed 's/^/it is no security update now: /' | head -50
	fi
	awk '$1 != "remove" { name = arch = $2; sub(/:[^:]*$/, "", name); sub(/^.*:/, "", arch); print name "." arch "=" $4 }' "$run/asked" >"$run/names"
	if ! zyp_plan install --no-recommends $(cat "$run/names") >"$tmp/would"; then
		echo "zypper would not do it: $(zyp_why)"
		return
	fi
	sed -n 's/^odd\t//p' "$tmp/would"
	sed '/^odd\t/d; s/\t.*//' "$tmp/would" | sort >"$tmp/will"
	comm -23 "$tmp/asked" "$tmp/will" | sed 's/^/it would not do: /' | head -50
	comm -13 "$tmp/asked" "$tmp/will" | sed 's/^/it would also do: /' | head -50
)

fam_fetch() (
	zyp official install --no-recommends --auto-agree-with-licenses --download-only $(cat "$run/names") >"$tmp/table" 2>&1
	case $? in 0 | 102 | 103) ;; *) echo "the packages could not be fetched: $(zyp_why)" ;; esac
)

fam_install() (
	# What was there as somebody else's need is not wanted for itself now.
	auto=/var/lib/zypp/AutoInstalled
	[ ! -e $auto ] || cp $auto "$run/auto"
	zyp official install --no-recommends --auto-agree-with-licenses $(cat "$run/names")
	code=$?
	{ cat "$run/auto" 2>/dev/null; awk '$1 == "install" { sub(/:[^:]*$/, "", $2); print $2 }' "$run/asked"; } | grep -v '^#' | sort -u >"$tmp/auto"
	[ ! -s "$tmp/auto" ] || { cat $auto "$tmp/auto" 2>/dev/null | grep -v '^#' | sort -u >$auto.castellan && mv $auto.castellan $auto; }
	[ $code = 0 ] || grep -iE 'problem|error|conflict' "$run/log" | head -20 >"$run/stopped"
	return $code
)

fam_repair() (
	zyp_refresh
	rpm_twice | awk -F '\t' '{ last[$1 "." $2] = $3 } END { for (p in last) print p "=" last[p] }' >"$tmp/again"
	[ ! -s "$tmp/again" ] || zyp official install --force --no-recommends --auto-agree-with-licenses $(cat "$tmp/again") || echo 'castellan: what was interrupted could not be put in place again; its old versions are removed all the same'
	rpm_finish
)

fam_kept() { rpm_kept; }

fam_reboot() (
	rpm_after_boot glibc systemd dbus-1 dbus-broker >"$tmp/parts"
	if [ "$(virt)" != container ]; then
		rpm_after_boot kernel-default kernel-core kernel-firmware ucode-intel ucode-amd >>"$tmp/parts"
		zypper --non-interactive needs-rebooting >/dev/null 2>&1 </dev/null
		[ $? != 102 ] || echo 'something that zypper needs-rebooting names' >>"$tmp/parts"
	fi
	if [ -s "$tmp/parts" ]; then sed 's/^/reboot\tyes\t/; s/$/ was updated since the start/' "$tmp/parts"; else printf 'reboot\tno\n'; fi
)

fam_automatic() {
	if grep -qE '^AOU_ENABLE_CRONJOB="?true' /etc/sysconfig/automatic_online_update 2>/dev/null; then
		printf 'automatic\ton\tyast2-online-update\n'
	elif systemctl is-enabled -q os-update.timer 2>/dev/null; then
		printf 'automatic\ton\tos-update\n'
	else
		printf 'automatic\toff\n'
	fi
}
