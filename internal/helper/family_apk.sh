# Alpine Linux on a numbered branch, with apk.
#
# Official are the folders main and community of the very branch that is installed, by their address; apk is given a file with
# these alone. An index may be signed with any key in /etc/apk/keys, which castellan cannot tell apart. There are no advisories,
# and apk has no way to install an exact set without writing it into the world file: it is all that the branch offers, or nothing.

fam_name() { echo apk; }
fam_removes() { echo yes; }

apk_db() { for d in /lib/apk/db /usr/lib/apk/db; do [ ! -e "$d/installed" ] || { echo "$d" && return; }; done; }

fam_lock() {
	file=$(apk_db)/lock
	[ -e "$file" ] || return 0
	node=$(stat -c %i "$file")
	for pid in $(awk -v node="$node" '$4 == "WRITE" && $6 ~ ":" node "$" { print $5 }' /proc/locks); do
		has_open "$pid" "$file" || continue
		printf 'lock\t%s\t%s\t-\n' "$pid" "$(tr -d '\t\n' <"/proc/$pid/comm")"
		return
	done
}

# In the database a package is lines "P:name", "V:version", "A:architecture"; "f:" marks one that is broken, or whose script failed.
fam_packages() {
	awk '
		/^P:/ { n = substr($0, 3) } /^V:/ { v = substr($0, 3) } /^A:/ { a = substr($0, 3) } /^f:/ { s = "broken" }
		/^$/ { if (n != "") print n "\t" a "\t" v "\t" (s == "" ? "ok" : s); n = v = a = s = "" }
		END { if (n != "") print n "\t" a "\t" v "\t" (s == "" ? "ok" : s) }' "$(apk_db)/installed" | sort
}

fam_database() {
	fam_packages | awk -F '\t' '$4 != "ok" { print $1 " is not whole, or a script of it failed" }' >"$tmp/broken"
	if [ -s "$tmp/broken" ]; then
		printf 'database\tbroken\nrepair\tyes\n'
		lines problem <"$tmp/broken"
	else
		printf 'database\tclean\n'
	fi
}

# apk_sources writes the branch's own repositories to the file given, others to $tmp/foreign.
apk_sources() {
	branch=$(. /etc/os-release && echo "$VERSION_ID" | cut -d . -f 1,2)
	cat /etc/apk/repositories /etc/apk/repositories.d/*.list 2>/dev/null | grep -vE '^[[:space:]]*(#|$)' | sort -u >"$tmp/enabled"
	grep -E "^(https?|file|ftp)?:?/*[^@ ]*/v$branch/(main|community)/?$" "$tmp/enabled" | grep -v '^@' >"$1"
	grep -vxFf "$1" "$tmp/enabled" >"$tmp/foreign" || :
	grep -qE "/v$branch/main/?$" "$1" || { echo "the repository main of branch $branch is not among /etc/apk/repositories" >"$tmp/err"; return 1; }
}

apk_why() { grep -hE 'ERROR|WARNING|not among|unable' "$tmp/err" "$tmp/table" 2>/dev/null | tr '\t\n' '  ' | cut -c1-300; }

# apk_refresh FILE: reads the lists anew. apk goes on with old lists and says so in a warning, which will not do.
apk_refresh() { apk update --repositories-file "$1" >"$tmp/table" 2>"$tmp/err" </dev/null && ! grep -qE '^(WARNING|ERROR)' "$tmp/err" "$tmp/table"; }

# apk_plan FILE: what an upgrade would do: CHANGE<TAB>BYTES, or "odd<TAB>what".
apk_plan() {
	apk upgrade --simulate --repositories-file "$1" >"$tmp/table" 2>"$tmp/err" </dev/null || return 1
	! grep -q '^ERROR' "$tmp/table" "$tmp/err" || return 1
	fam_packages >"$tmp/now"
	sed -n 's/^([0-9]*\/[0-9]*) //p' "$tmp/table" | awk -v now="$tmp/now" -v arch="$(apk --print-arch)" '
		BEGIN { while ((getline line <now) > 0) { split(line, p, "\t"); is[p[1]] = p[2] } }
		{ gsub(/[()]/, ""); a = $2 in is ? is[$2] : arch }
		$1 == "Upgrading" && $4 == "->" { print "upgrade " $2 ":" a " " $3 " " $5 " alpine:branch\t0"; next }
		$1 == "Installing" { print "install " $2 ":" a " - " $3 " alpine:branch\t0"; next }
		$1 == "Purging" { print "remove " $2 ":" a " " $3 " - -\t0"; next }
		{ print "odd\tapk would also: " $0 }' | sort
}

fam_check() (
	if ! apk_sources "$tmp/official" || ! apk_refresh "$tmp/official"; then
		printf 'stale\t%s\n' "$(apk_why)"
		return
	fi
	if ! apk_plan "$tmp/official" >"$tmp/all"; then
		printf 'stale\twhat an upgrade would do is not known: %s\n' "$(apk_why)"
		return
	fi
	printf 'fresh\tyes\n'
	[ ! -s "$tmp/foreign" ] || printf 'uncovered\twhat is newer in repositories that are not of this branch: %s\n' "$(head -3 "$tmp/foreign" | tr '\t\n' '  ')"
	sed -n 's/^odd\t/unread\t/p' "$tmp/all"
	sed -i '/^odd\t/d' "$tmp/all"
	awk -F '\t' -v OFS='\t' '{ print "all", $1, 0, "-" }' "$tmp/all"
	awk -F '[ \t]' -v OFS='\t' '$1 == "upgrade" { split($2, p, ":"); print "pending", p[1], p[2], $3, $4, $5, "official", "-", "-" }' "$tmp/all"
	# A world entry "name=version" or "name<version" holds a package.
	grep -E '^[a-z0-9].*[=<~]' /etc/apk/world 2>/dev/null | while read -r held; do line uncovered "what is newer of $held, which the world file holds"; done
	printf 'space\t/\t%s\t%s\n' "$(df -Pk / | awk 'END { printf "%.0f", $4 * 1024 }')" $(($(wc -l <"$tmp/all") * 4000000 + 30000000))
)

fam_ready() (
	if [ "$1" != all ]; then
		echo 'the repositories of Alpine Linux have no advisories: only mode all can be, with everything in it'
		return
	fi
	if ! apk_sources "$run/repositories" || ! apk_refresh "$run/repositories"; then
		echo "the package lists could not be refreshed: $(apk_why)"
		return
	fi
	if ! apk_plan "$run/repositories" >"$tmp/would"; then
		echo "apk does not say what it would do: $(apk_why)"
		return
	fi
	sed -n 's/^odd\t//p' "$tmp/would"
	sed '/^odd\t/d; s/\t.*//' "$tmp/would" | sort >"$tmp/will"
	if [ "$(cat "$run/newer" 2>/dev/null)" = 1 ]; then
		awk -v will="$tmp/will" '
			BEGIN { while ((getline line <will) > 0) { split(line, p, " "); now[p[1] " " p[2] " " p[3] " " p[5]] = p[4] } }
			{ key = $1 " " $2 " " $3 " " $5; print $1, $2, $3, (key in now ? now[key] : $4), $5 }' "$run/asked" >"$run/asked.new" && mv "$run/asked.new" "$run/asked"
	fi
	sort "$run/asked" >"$tmp/asked"
	comm -23 "$tmp/asked" "$tmp/will" | sed 's/^/it would not do: /' | head -50
	comm -13 "$tmp/asked" "$tmp/will" | sed 's/^/it would also do, and can only be done with the rest: /' | head -50
)

fam_install() (
	find /etc -name '*.apk-new' 2>/dev/null | sort >"$run/aside"
	apk upgrade --no-interactive --repositories-file "$run/repositories" </dev/null
	code=$?
	[ $code = 0 ] || grep '^ERROR' "$run/log" | head -20 >"$run/stopped"
	return $code
)

fam_repair() { apk fix --no-interactive </dev/null; }

fam_kept() { find /etc -name '*.apk-new' 2>/dev/null | sort | comm -13 "$run/aside" - | sed 's/\.apk-new$//' | lines conffile; }

fam_reboot() {
	if [ "$(virt)" != container ] && [ -d /lib/modules ] && [ ! -d "/lib/modules/$(uname -r)" ]; then
		printf 'reboot\tyes\tthe kernel %s runs, and its modules are gone\n' "$(uname -r)"
	else
		printf 'reboot\tunknown\tapk does not tell when a package was installed: libraries that were replaced stay in use until what uses them starts anew\n'
	fi
}

fam_automatic() {
	if grep -rqsE 'apk .*upgrade' /etc/crontabs /etc/periodic; then printf 'automatic\ton\tcron\n'; else printf 'automatic\toff\n'; fi
}
