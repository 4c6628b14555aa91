# ---- apt: Debian, Ubuntu, Proxmox ----
#
# What may be installed is worked out by apt itself, in a view of the archives that is castellan's own: it holds the lists of the
# distribution's own archives only, so that no version of another archive exists in it, whatever the pins of this machine say.
# Those pins, and holds, count in it. The configuration of this machine is not changed.

fam_name() { echo apt; }

fam_kind() {
	[ -e "$tmp/kind" ] || dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' proxmox-ve proxmox-backup-server proxmox-mailgateway 2>/dev/null |
		sed -n 's/^ii proxmox-ve$/pve/p; s/^ii proxmox-backup-server$/pbs/p; s/^ii proxmox-mailgateway$/pmg/p' | sort -r | head -n 1 >"$tmp/kind"
	cat "$tmp/kind"
}

# fam_lock finds who holds one of the locks: the kernel tells the processes that hold any, and what each has open.
fam_lock() {
	for pid in $(awk '$2 == "POSIX" && $4 == "WRITE" { print $5 }' /proc/locks 2>/dev/null | sort -u); do
		[ "$pid" -gt 0 ] 2>/dev/null && [ "$pid" != $$ ] || continue
		has_open "$pid" /var/lib/dpkg/lock /var/lib/dpkg/lock-frontend /var/lib/apt/lists/lock /var/cache/apt/archives/lock || continue
		line lock "$pid" "$(program "$pid")" "$(ps -o etimes= -p "$pid" 2>/dev/null | tr -d ' ')"
		return
	done
}

# program names a process: of a script its file, which tells more than its interpreter.
program() {
	tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | awk -v name="$(cat "/proc/$1/comm" 2>/dev/null)" '
		NR == 1 { first = $0; sub(/.*\//, "", first) }
		NR > 1 && first ~ /^(python|perl|sh$|dash$|bash$)/ && /^\// { sub(/.*\//, ""); name = $0; exit }
		END { print substr(name, 1, 60) }'
}

fam_database() {
	held=$(fam_lock)
	if [ -n "$held" ]; then
		line database unknown
		line problem "$(echo "$held" | cut -f 3) works on packages now"
		return
	fi
	{
		ls /var/lib/dpkg/updates 2>/dev/null | grep -q '^[0-9]' && echo 'dpkg was interrupted'
		dpkg-query -W -f '${db:Status-Abbrev}|${binary:Package}\n' | awk -F '|' '
			BEGIN { w["H"] = "half-installed"; w["U"] = "unpacked and not configured"; w["F"] = "half-configured"; w["W"] = "waiting for triggers"; w["t"] = "waiting for its triggers" }
			{ s = substr($1, 2, 1) }
			s in w { print $2 " is " w[s] }
			substr($1, 3, 1) == "R" { print $2 " has to be installed again" }'
	} >"$tmp/problems"
	# apt-get check tells unmet dependencies. Where dpkg was interrupted it says no more than that.
	[ -s "$tmp/problems" ] || apt-get -o Debug::NoLocking=true -qq check >/dev/null 2>"$tmp/unmet" || { grep '^E: ' "$tmp/unmet" || echo 'apt-get check fails'; } | cut -c 4- >>"$tmp/problems"
	audit=$(dpkg --audit 2>&1 | head -n 1)
	[ -z "$audit" ] || [ -s "$tmp/problems" ] || echo "$audit" >>"$tmp/problems"
	if [ -s "$tmp/problems" ]; then
		line database broken
		lines problem <"$tmp/problems"
		line repair yes
	else
		line database clean
	fi
}

fam_packages() {
	dpkg-query -W -f '${Package}\t${Architecture}\t${Version}\t${db:Status-Abbrev}\n' >"$tmp/dpkg" || return 1
	awk -F "$tab" '{ s = substr($4, 2, 1) } s != "n" && s != "c" { print $1 "\t" $2 "\t" $3 "\t" (s == "i" ? "ok" : "halfway") }' "$tmp/dpkg" | sort
}

# fam_reboot: a container has no kernel, so what kernels ask for does not count there.
fam_reboot() {
	where=$(virt)
	: >"$tmp/reboot"
	if [ -e /run/reboot-required ]; then
		sort -u /run/reboot-required.pkgs 2>/dev/null | grep -v '^$' | cut -c 1-200 >"$tmp/reboot.pkgs"
		if [ ! -s "$tmp/reboot.pkgs" ]; then
			[ "$where" = container ] && ls /boot/vmlinuz-* >/dev/null 2>&1 || echo '/run/reboot-required is there' >"$tmp/reboot"
		elif [ "$where" = container ]; then
			grep -v -E '^(linux-(image|base|modules|headers|generic|virtual|image-.*)|proxmox-kernel|pve-kernel|raspi-firmware|.*-microcode)' "$tmp/reboot.pkgs" >"$tmp/reboot"
		else
			cp "$tmp/reboot.pkgs" "$tmp/reboot"
		fi
	fi
	[ "$where" = container ] || newer_kernel "$(uname -r)" "$(uname -v)" >>"$tmp/reboot"
	if [ -s "$tmp/reboot" ]; then
		head -n 50 "$tmp/reboot" | while IFS= read -r why; do line reboot yes "$why"; done
	else
		line reboot no
	fi
}

# newer_kernel RELEASE BUILD: is a newer kernel installed than the one that runs? Only those of the same flavour count ("amd64",
# "cloud-amd64", "rpi-v8"), without which there is nothing to compare, and only packages of a kernel itself: what merely depends
# on the newest has no release in its name. The flavour goes first, since "+deb13" and "+deb13.1" sort wrongly before it.
newer_kernel() {
	flavour=$(echo "$1" | sed -E 's/^[0-9]+(\.[0-9]+)*([+~][A-Za-z0-9.]+)?(-[0-9]+)?(-pve)?-?/\4/; s/^-//')
	running=${1%-"$flavour"} newest=
	dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\n' 'linux-image-[0-9]*' 'proxmox-kernel-[0-9]*' 'pve-kernel-[0-9]*' 2>/dev/null | grep '^ii' | sed -E 's/\|(linux-image-(unsigned-)?|proxmox-kernel-|pve-kernel-)/|/; s/-signed\|/|/' >"$tmp/kernels"
	grep -q -F "|$1|" "$tmp/kernels" || return 0 # the one that runs is not of a package
	while IFS='|' read -r state release version; do
		if [ "$release" = "$1" ]; then
			# The same release built anew: Debian writes the version of the package into the build.
			case $2 in *" Debian $version "* | *" Debian $version") ;; *' Debian '*) echo "kernel $1 is installed as $version, and an earlier build of it runs" ;; esac
		fi
		case $release in *-"$flavour") ;; *) continue ;; esac
		release=${release%-"$flavour"}
		echo "$release" | grep -q -E '^[0-9.]+([+~][A-Za-z0-9.]+)?(-[0-9]+)?$' || continue # another flavour that ends alike
		if dpkg --compare-versions "$release" gt "${newest:-$running}"; then newest=$release; fi
	done <"$tmp/kernels"
	[ -z "$newest" ] || echo "kernel $newest-$flavour is installed, $1 runs"
}

fam_automatic() {
	eval "$(apt-config shell install APT::Periodic::Unattended-Upgrade load APT::Periodic::Download-Upgradeable-Packages enable APT::Periodic::Enable 2>/dev/null | grep -E "^(install|load|enable)='[0-9a-z]*'\$")"
	if [ "${enable:-1}" = 0 ] || { systemd && ! systemctl is-enabled -q apt-daily-upgrade.timer 2>/dev/null; }; then
		line automatic off
	elif [ -x /usr/bin/unattended-upgrade ] && [ "${install:-0}" != 0 ]; then
		line automatic on unattended-upgrades
	elif [ "${load:-0}" != 0 ]; then
		line automatic download apt
	else
		line automatic off
	fi
}

# ---- which archives are the distribution's own ----

# signed BASE: prints the release file at BASE in the lists, where a key of the distribution itself signed it.
signed() {
	for keys in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/ubuntu-archive-keyring.gpg /usr/share/keyrings/proxmox-archive-keyring.gpg /etc/apt/trusted.gpg.d/proxmox-release-*.gpg; do
		case $keys in *"/$ID-"*) ;; */proxmox-*) [ -n "$kind" ] || continue ;; *) continue ;; esac
		[ -r "$keys" ] || continue
		rm -f "$tmp/release"
		if has gpgv; then
			# Its exit code tells of any key that is not known; one good signature is what is asked for.
			if [ -e "$1_InRelease" ]; then
				gpgv --keyring "$keys" --status-fd 3 --output "$tmp/release" "$1_InRelease" 3>"$tmp/status" 2>/dev/null
			else
				gpgv --keyring "$keys" --status-fd 3 "$1_Release.gpg" "$1_Release" 3>"$tmp/status" 2>/dev/null
				cp "$1_Release" "$tmp/release" 2>/dev/null
			fi
			grep -q '^\[GNUPG:\] GOODSIG ' "$tmp/status" && ! grep -q '^\[GNUPG:\] BADSIG ' "$tmp/status" || continue
		elif has sqv; then
			if [ -e "$1_InRelease" ]; then
				sqv --keyring "$keys" --output "$tmp/release" --cleartext "$1_InRelease" >/dev/null 2>&1 || continue
			else
				sqv --keyring "$keys" --signature-file "$1_Release.gpg" "$1_Release" >/dev/null 2>&1 && cp "$1_Release" "$tmp/release" || continue
			fi
		fi
		[ -s "$tmp/release" ] && cat "$tmp/release" && return 0
	done
	return 1
}

# field NAME FILE: a field of a release file.
field() { sed -n "s/^$1: *//p;/^[A-Za-z0-9]*:\$/q" "$2" | head -n 1 | tr -d '\t\r'; }

# when TEXT: a time of a release file in seconds; nothing where it has none.
when() { [ -z "$1" ] || date -u -d "$1" +%s 2>/dev/null; }

# archives writes $tmp/archives, "uri dist|label|suite|sort|name|origin|codename" each, and links the lists of the distribution's own
# into $tmp/lists, which is all that the own view holds.
archives() {
	[ ! -d "$tmp/lists" ] || return 0
	mkdir -p "$tmp/lists/partial"
	ID=$(. /etc/os-release && echo "$ID") VERSION_CODENAME=$(. /etc/os-release && echo "$VERSION_CODENAME") kind=$(fam_kind)
	has gpgv || has sqv || line unread 'which archives are official: neither gpgv nor sqv is there to verify their signatures'
	apt-get indextargets --format '$(FILENAME)|$(METAKEY)|$(REPO_URI)|$(RELEASE)' 'Created-By: Packages' 2>/dev/null |
		awk -F '|' '{ k = $2; gsub("/", "_", k); at = index($1, "_" k); if (at) { sub("/$", "", $3); print substr($1, 1, at - 1) "|" $1 "|" $3 " " $4 } }' >"$tmp/targets"
	: >"$tmp/archives"
	cut -d '|' -f 1,3 "$tmp/targets" | sort -u | while IFS='|' read -r base at; do
		sort=third_party said=
		if signed "$base" >"$tmp/fields"; then
			:
		else
			said=unsigned
			if [ -e "${base}_InRelease" ]; then cp "${base}_InRelease" "$tmp/fields"; else cp "${base}_Release" "$tmp/fields" 2>/dev/null || : >"$tmp/fields"; fi
		fi
		origin=$(field Origin "$tmp/fields") label=$(field Label "$tmp/fields") suite=$(field Suite "$tmp/fields") codename=$(field Codename "$tmp/fields")
		name=$label:$codename
		case $ID/$origin/$label/$codename/$suite in
		"debian/Debian/Debian/$VERSION_CODENAME/"* | "debian/Debian/Debian/$VERSION_CODENAME-updates/"*) sort=official ;;
		"debian/Debian/Debian-Security/$VERSION_CODENAME-security/"*) sort=security ;;
		"debian/Debian Backports/"*) sort=backports ;;
		"ubuntu/Ubuntu/Ubuntu/$VERSION_CODENAME/$VERSION_CODENAME-security") sort=security name=$label:$suite ;;
		"ubuntu/Ubuntu/Ubuntu/$VERSION_CODENAME/$VERSION_CODENAME" | "ubuntu/Ubuntu/Ubuntu/$VERSION_CODENAME/$VERSION_CODENAME-updates") sort=official name=$label:$suite ;;
		"ubuntu/Ubuntu/Ubuntu/$VERSION_CODENAME/$VERSION_CODENAME-backports") sort=backports name=$label:$suite ;;
		"ubuntu/UbuntuESM"*) sort=esm name=$label:$suite ;;
		debian/Debian/* | ubuntu/Ubuntu/*) sort=other name=$label:$suite ;;
		debian/Proxmox/*/"$VERSION_CODENAME"/*) [ -z "$kind" ] || sort=official ;;
		esac
		if [ -n "$said" ] && [ $sort != third_party ]; then
			line unread "the archive $at calls itself $name and is not signed by a key of the distribution; it counts as a third party's"
			sort=third_party
		fi
		name=$(echo "${name#:}" | tr -c 'A-Za-z0-9._:/+@~\n-' '-')
		case $name in [A-Za-z0-9]*) ;; *) name=unknown ;; esac
		echo "$at|$label|$suite|$sort|$name|$origin|$codename" >>"$tmp/archives"
		case $sort in official | security) ;; *) continue ;; esac
		line release "$name" $sort "$(when "$(field Date "$tmp/fields")")" "$(when "$(field Valid-Until "$tmp/fields")")"
		for file in "${base}_InRelease" "${base}_Release" "${base}_Release.gpg"; do [ ! -e "$file" ] || ln -s "$file" "$tmp/lists/"; done
		awk -F '|' -v base="$base" '$1 == base { print $2 }' "$tmp/targets" | while IFS= read -r file; do ln -s "$file" "$tmp/lists/"; done
	done
}

# view MODE: writes the configuration of the own view, $tmp/MODE.conf. In mode security, whatever is not of a security archive
# stays below what is installed, and can still be installed where a security update needs it. Mode exact has exactly $run/asked.
view() {
	{
		if [ "$1" = exact ]; then
			# The first pin of a version counts, so those of this machine come last.
			awk '{ sub(/:.*/, "", $2); if ($1 != "remove") printf "Package: %s\nPin: version %s\nPin-Priority: 995\n\n", $2, $4 }' "$run/asked"
			awk -F "$tab" 'FNR == NR { asked[$1]; next } !($1 in asked) { split($1, c, " "); sub(/:.*/, "", c[2]); if (c[1] != "remove") printf "Package: %s\nPin: version %s\nPin-Priority: -1\n\n", c[2], c[4] }' "$run/asked" "$tmp/plan.$mode"
		fi
		awk -F '|' -v mode="$1" '
			$4 != "security" && $4 != "official" || mode == "all" || mode == "full" { next }
			{ printf "Package: *\nPin: release o=%s,l=%s,a=%s,n=%s\nPin-Priority: %d\n\n", $6, $2, $3, $7, mode == "security" && $4 == "security" ? 500 : 50 }' "$tmp/archives"
		cat /etc/apt/preferences 2>/dev/null
	} >"$tmp/$1.pins"
	cat >"$tmp/$1.conf" <<-END
		Dir::State::lists "$tmp/lists/";
		Dir::Etc::Preferences "$tmp/$1.pins";
		Dir::Cache::pkgcache "";
		Dir::Cache::srcpkgcache "";
		// There is one release to choose from; a default that names a part of it would keep the other parts out.
		APT::Default-Release "";
		APT::Get::Assume-Yes "true";
		APT::Get::AllowUnauthenticated "false";
		APT::Get::allow-downgrades "false";
		APT::Get::allow-remove-essential "false";
		APT::Get::allow-change-held-packages "false";
		APT::Get::force-yes "false";
		APT::Get::Remove "$([ "$mode" = full ] && echo true || echo false)";
		APT::Color "0";
	END
}

# get VIEW OPTIONS...: apt-get in the own view, doing what mode MODE does.
get() {
	view=$1
	shift
	if [ "$mode" = full ]; then
		apt-get -q -c "$tmp/$view.conf" "$@" dist-upgrade
	else
		apt-get -q -c "$tmp/$view.conf" --with-new-pkgs "$@" upgrade
	fi
}

# changes reads what apt-get would do and prints "CHANGE<TAB>SECURITY" each, sorted.
changes() {
	awk -v archives="$tmp/archives" '
		BEGIN { while ((getline row <archives) > 0) { split(row, f, "|"); if (f[4] == "security" || f[4] == "official") { name[f[2] "|" f[3]] = f[5]; sec[f[2] "|" f[3]] = f[4] == "security" } } }
		$1 == "Remv" || $1 == "Purg" { n = $2; sub(/:.*/, "", n); old = $3; gsub(/[][]/, "", old); print "remove " n ":" (($2 ~ /:/) ? substr($2, index($2, ":") + 1) : "any") " " old " - -\t0"; next }
		$1 == "Inst" {
			n = $2; sub(/:.*/, "", n)
			at = index($0, "("); head = substr($0, 1, at - 1); body = substr($0, at + 1); sub(/\).*$/, "", body)
			old = "-"
			if (match(head, /\[[^]]*\]/)) old = substr(head, RSTART + 1, RLENGTH - 2)
			arch = "-"
			if (match(body, /\[[^]]*\]$/)) { arch = substr(body, RSTART + 1, RLENGTH - 2); body = substr(body, 1, RSTART - 2) }
			at = index(body, " "); new = substr(body, 1, at - 1); k = split(substr(body, at + 1), from, ", ")
			archive = "unknown"; s = 0
			for (i = 1; i <= k; i++) {
				at = index(from[i], ":"); key = substr(from[i], 1, at - 1); suite = substr(from[i], at + 1); sub(/.*\//, "", suite); key = key "|" suite
				if (key in name && (archive == "unknown" || sec[key] && !s)) { archive = name[key]; s = sec[key] }
			}
			print (old == "-" ? "install " : "upgrade ") n ":" arch " " old " " new " " archive "\t" s
		}' | sort
}

# plan MODE: what a mode would do now, in $tmp/plan.MODE.
plan() {
	mode=$1
	view "$1"
	get "$1" -s >"$tmp/sim.$1" 2>"$tmp/sim.$1.err" || return 1
	changes <"$tmp/sim.$1" >"$tmp/plan.$1"
}

# refresh reads the lists of all archives anew. Whoever does the same just now is waited for, which apt-get does not do by itself.
refresh() {
	end=$(($(now) + $(lock_limit 25)))
	while :; do
		timeout 600 apt-get -q -o APT::Update::Error-Mode=any -o DPkg::Lock::Timeout=120 -o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 update </dev/null >"$tmp/update" 2>&1
		code=$?
		[ $code != 0 ] && grep -q '^E: Could not get lock /var/lib/apt/lists/' "$tmp/update" && [ "$(now)" -lt $end ] || break
		sleep 1
	done
	case $code in
	0) ;;
	124) echo 'refreshing the lists took more than 600 s' ;;
	*) { grep -E '^(E|W): ' "$tmp/update" || echo 'E: apt-get update fails'; } | cut -c 4- | awk '!seen[$0]++' | head -n 20 ;;
	esac
}

fam_check() {
	refresh >"$tmp/stale"
	archives
	grep -q '|official|' "$tmp/archives" || echo 'no archive of the distribution itself is known' >>"$tmp/stale"
	grep -q '|security|' "$tmp/archives" || echo "no archive with the distribution's security updates is known" >>"$tmp/stale"
	if [ -s "$tmp/stale" ]; then lines stale <"$tmp/stale"; else line fresh yes; fi
	for what in security all; do
		m=$what
		[ $what = security ] || m=$(fam_mode)
		if plan $m; then
			sizes "$tmp/plan.$m" | sed "s/^/$what$tab/"
		else
			: >"$tmp/plan.$m"
			line stale "what mode $what would do: $(grep -m 1 '^E: ' "$tmp/sim.$m.err")"
		fi
	done
	[ $m = all ] || cp "$tmp/plan.$m" "$tmp/plan.all"
	space
	[ "$m" != all ] || fix
	pending
}

# fix tells what would complete packages whose dependencies are not met, beside what a repair does anyway: to configure what is
# unpacked, and to bring anew what lies half unpacked, as it is.
fix() {
	[ -z "$(fam_lock)" ] && ! apt-get -o Debug::NoLocking=true -qq check >/dev/null 2>&1 || return 0
	get_fix -s >"$tmp/sim.fix" 2>/dev/null || return 0
	fixes <"$tmp/sim.fix" >"$tmp/plan.fix"
	sizes "$tmp/plan.fix" | sed "s/^/fix$tab/"
}
get_fix() { apt-get -q -c "$tmp/all.conf" "$@" -f install; }
fixes() { changes | awk '{ if ($1 == "remove" || $3 != $4) print }'; }

# sizes PLAN: adds the bytes to fetch and what each needs of the rest, and keeps "bytes installed-before installed-after" in $tmp/sizes.
sizes() {
	awk -F "$tab" '{ split($1, c, " "); n = c[2]; sub(/:(all|any)$/, "", n); if (c[1] != "remove") print n "=" c[4] }' "$1" | xargs -r apt-cache -c "$tmp/$mode.conf" show --no-all-versions 2>/dev/null >"$tmp/shown"
	dpkg-query -W -f '${Package} ${Installed-Size}\n' >"$tmp/had"
	needs "$1" >"$tmp/needs"
	awk -v had="$tmp/had" -v shown="$tmp/shown" -v out="$tmp/sizes" -v needs="$tmp/needs" -F "$tab" '
		BEGIN {
			while ((getline row <needs) > 0) { split(row, f, " "); rest[f[1]] = rest[f[1]] (rest[f[1]] == "" ? "" : " ") f[2] }
			while ((getline row <had) > 0) { split(row, f, " "); old[f[1]] = f[2] }
			while ((getline row <shown) > 0) {
				split(row, f, " ")
				if (f[1] == "Package:") p = f[2]; else if (f[1] == "Version:") v = f[2]; else if (f[1] == "Size:") size[p, v] = f[2]; else if (f[1] == "Installed-Size:") inst[p, v] = f[2]
				else if (f[1] == "Filename:") { p0 = p }
			}
		}
		{
			split($1, c, " "); n = c[2]; sub(/:.*/, "", n)
			b = size[n, c[4]]
			print $0 "\t" (b == "" ? "-" : b) (rest[n] == "" ? "" : "\t" rest[n])
			printf "%d %d %d\n", b, old[n], inst[n, c[4]] >out
		}' "$1"
}

# needs PLAN: "NAME OTHER:ARCH" where a package of it cannot be had without another one of it: by what they say of each other, held
# against what is installed. What is provided under another name counts; apt has the last word.
needs() {
	dpkg-query -W -f '${Package}|${Version}|${db:Status-Abbrev}|${Provides}\n' 2>/dev/null | sed -n -E 's/^([^|]*\|[^|]*\|).i.\|/\1/p' >"$tmp/have"
	awk -v plan="$1" -v have="$tmp/have" -v shown="$tmp/shown" '
		# Of what a package provides: give[NAME] is a list of "PACKAGE=VERSION", VERSION "0" where it has none.
		function provided(give, p, text,  n, i, f, name, v) {
			n = split(text, f, / *, */)
			for (i = 1; i <= n; i++) {
				name = f[i]; sub(/[ :([].*/, "", name); v = "0"
				if (match(f[i], /\(= *[^)]+\)/)) { v = substr(f[i], RSTART + 2, RLENGTH - 3); gsub(/ /, "", v) }
				if (name != "") give[name] = give[name] " " p "=" v
			}
		}
		BEGIN {
			while ((getline row <have) > 0) { split(row, f, "|"); old[f[1]] = f[2]; provided(gives, f[1], f[3]) }
			while ((getline row <plan) > 0) { sub(/\t.*/, "", row); split(row, c, " "); if (c[1] == "remove") continue; n = c[2]; sub(/:.*/, "", n); full[n] = c[2]; new[n] = c[4] }
			RS = ""; FS = "\n"
			while ((getline row <shown) > 0) { fields(row); if (v["Package"] in new && new[v["Package"]] == v["Version"]) provided(brings, v["Package"], v["Provides"]) }
		}
		function fields(text,  n, i, l, at) {
			split("", v); n = split(text, l, "\n")
			for (i = 1; i <= n; i++) { at = index(l[i], ": "); if (at) v[substr(l[i], 1, at - 1)] = substr(l[i], at + 2) }
		}
		{
			fields($0)
			p = v["Package"]
			if (!(p in new) || new[p] != v["Version"]) next
			clauses("D", v["Pre-Depends"]); clauses("D", v["Depends"]); clauses("B", v["Breaks"]); clauses("B", v["Conflicts"])
		}
		# say NAME HAS OP OTHER BRINGS: one way to meet a clause. "-": there is none; BRINGS is what OTHER would provide.
		function say(has, op, other, would) { print id, kind0, p, has, op, other, would }
		function clauses(kind, text,  n, m, i, j, k, x, c, a, g, f, name, hit, op) {
			n = split(text, c, / *, */); kind0 = kind
			for (i = 1; i <= n; i++) {
				m = split(c[i], a, / *\| */)
				hit = 0
				for (j = 1; j <= m; j++) { name = a[j]; sub(/[ :([].*/, "", name); if (name != p && (name in full || kind == "D" && name in brings)) hit = 1 }
				if (!hit) continue
				id++
				for (j = 1; j <= m; j++) {
					name = a[j]; sub(/[ :([].*/, "", name); op = "- -"
					if (match(a[j], /\([<>=]+ *[^)]+\)/)) { op = substr(a[j], RSTART + 1, RLENGTH - 2); gsub(/ /, "", op); at = match(op, /[^<>=]/); op = substr(op, 1, at - 1) " " substr(op, at) }
					say(name in old ? old[name] : "-", op, name in full && name != p ? full[name] : "-", "-")
					if (kind != "D") continue
					k = split(gives[name], g, " ")
					for (x = 1; x <= k; x++) { split(g[x], f, "="); say(f[2] == "0" && op != "- -" ? "-" : f[2], op, "-", "-") }
					k = split(brings[name], g, " ")
					for (x = 1; x <= k; x++) { split(g[x], f, "="); if (f[1] != p && (f[2] != "0" || op == "- -")) say("-", op, full[f[1]], f[2]) }
				}
			}
		}' "$tmp/shown" | while read -r id kind p has op wants full would; do
		met=0
		if [ "$has" != - ] && { [ "$op" = - ] || dpkg --compare-versions "$has" "$op" "$wants"; }; then met=1; fi
		if [ "$would" != - ] && [ "$op" != - ] && ! dpkg --compare-versions "$would" "$op" "$wants"; then full=-; fi
		echo "$id $kind $p $met $full"
	done | awk '
		function done() { if (p != "" && !met && other != "") print p, other; p = other = ""; met = 0 }
		$1 != id { done(); id = $1 }
		$2 == "B" { if ($4 && $5 != "-") print $3, $5; next }
		{ p = $3; met = met || $4; if (other == "" && $5 != "-") other = $5 }
		END { done() }' | sort -u
}

free() { df -P -k "$1" 2>/dev/null | awk 'NR == 2 { printf "%.0f\n", $4 * 1024 }'; }

# space tells what is free and what mode all needs: to unpack what is new beside what is old, to keep what was fetched, and in /boot
# for a further kernel.
space() {
	[ -e "$tmp/sizes" ] || : >"$tmp/sizes"
	set -- $(awk '{ fetch += $1; if ($3 > $2) grow += $3 - $2; if ($3 > most) most = $3; n++ } END { printf "%.0f %.0f\n", n ? fetch + 20971520 : 0, n ? (grow + most) * 1024 + 20971520 : 0 }' "$tmp/sizes")
	root=$2 var=$1
	if [ "$(df -P / | awk 'NR == 2 { print $6 }')" = "$(df -P /var/cache/apt | awk 'NR == 2 { print $6 }')" ]; then
		line space / "$(free /)" $((root + (var > 20971520 ? var - 20971520 : 0)))
	else
		line space / "$(free /)" "$root"
		line space /var "$(free /var/cache/apt)" "$var"
	fi
	if [ "$(virt)" != container ] && [ -d /boot ]; then
		need=0
		if grep -q '^install \(linux-image\|proxmox-kernel\|pve-kernel\)' "$tmp/plan.$mode"; then
			need=$(ls -l /boot 2>/dev/null | awk '/ (vmlinuz|initrd)/ { if ($5 > most[substr($9, 1, 4)]) most[substr($9, 1, 4)] = $5 } END { n = 0; for (k in most) n += most[k]; printf "%.0f\n", (n ? n : 100000000) * 1.2 + 10485760 }')
		fi
		line space /boot "$(free /boot)" "$need"
	fi
}

# pending lists every newer version that any archive has, and why those that would not be installed would not be.
pending() {
	cut -f 1,4 "$tmp/dpkg" >/dev/null 2>&1 || fam_packages >/dev/null
	dpkg-query -W -f '${db:Status-Abbrev}|${binary:Package}\n' | sed -n 's/^.i.|//p' >"$tmp/names"
	xargs -r apt-cache policy <"$tmp/names" >"$tmp/policy" 2>/dev/null
	xargs -r apt-cache -c "$tmp/$m.conf" policy <"$tmp/names" >"$tmp/policy.own" 2>/dev/null
	[ -s "$tmp/policy" ] && [ -s "$tmp/policy.own" ] || line unread 'which other versions there are, and why they are not installed: apt-cache policy did not answer'
	apt-mark showhold >"$tmp/held" 2>/dev/null || line unread 'which packages are held'
	# "name arch installed available archive sort phased candidate" of each newer version that counts: of the distribution's own the
	# highest, and the highest security update; of others the highest of each sort.
	awk -F "$tab" -v archives="$tmp/archives" -v own="$tmp/policy.own" '
		BEGIN {
			while ((getline row <archives) > 0) { split(row, f, "|"); sort[f[1]] = f[4]; name[f[1]] = f[5] }
			while ((getline row <own) > 0) { if (row ~ /^[^ ]/) { p = row; sub(/:$/, "", p) } else if (row ~ /^  Candidate: /) candidate[p] = substr(row, 14) }
			rank["security"] = 6; rank["official"] = 5; rank["other"] = 4; rank["backports"] = 3; rank["esm"] = 2; rank["third_party"] = 1
		}
		function flush(  s) { # one version of the table is complete
			if (version != "" && best != "" && !((package, best) in done)) { done[package, best] = 1; print package "\t" installed "\t" version "\t" from "\t" best "\t" phased "\t" candidate[package] }
			version = best = ""
		}
		/^[^ ]/ { flush(); package = $0; sub(/:$/, "", package); over = 0; next }
		/^  Installed: / { installed = substr($0, 14); next }
		/^ \*\*\* / { flush(); over = 1; next }
		over || /^  [A-Z]/ { next }
		/^     [^ ]/ { flush(); split($0, f, " "); version = f[1]; phased = $0 ~ /\(phased/ ? 1 : 0; next }
		/^        / {
			split($0, f, " "); at = f[3]; sub(/\/[^\/]*$/, "", at); at = f[2] " " at
			s = at in sort ? sort[at] : "third_party"
			if (best == "" || rank[s] > rank[best]) { best = s; from = at in name ? name[at] : "unknown" }
		}
		END { flush() }' "$tmp/policy" >"$tmp/newer"
	asked=0
	while IFS="$tab" read -r package installed version from sort phased candidate; do
		name=${package%%:*} arch=$(awk -F "$tab" -v n="$name" '$1 == n { print $2; exit }' "$tmp/dpkg") why= note=
		case $package in *:*) arch=${package#*:} ;; esac
		s=$sort
		case $sort in
		backports) s=official why=backports ;;
		other) s=official why=not_released note="the archive is none of those that castellan installs from" ;;
		esm) s=official why=esm_only note="it takes a contract with the distributor, and castellan does not install from there" ;;
		third_party) why=third_party ;;
		*)
			if grep -q -F " $name:" "$tmp/plan.all" "$tmp/plan.security" && awk -v n="$name" -v v="$version" '{ sub(/:.*/, "", $2) } $2 == n && $4 == v { found = 1 } END { exit !found }' "$tmp/plan.all" "$tmp/plan.security"; then
				:
			elif awk -v n="$name" '{ sub(/:.*/, "", $2) } $2 == n { found = 1 } END { exit !found }' "$tmp/plan.all"; then
				continue # a still newer one is installed
			elif grep -qxF -e "$name" -e "$package" "$tmp/held"; then
				why=held note='apt-mark unhold would release it'
			elif [ "$phased" = 1 ]; then
				why=phased note='the distributor hands it out to some machines first'
			elif [ "$candidate" != "$version" ]; then
				why=pinned note="by the pins of this machine its candidate is $candidate"
			elif [ $((asked += 1)) -gt 30 ]; then
				why=kept_back
			else
				apt-get -q -s -c "$tmp/$m.conf" -o APT::Get::Remove=true install "$package" >"$tmp/why" 2>&1
				gone=$(sed -n -E 's/^(Remv|Purg) ([^ ]*).*/\2/p' "$tmp/why" | head -n 10 | tr '\n' ' ')
				if [ -n "$gone" ]; then
					why=needs_removal note="it would remove $gone"
				else
					why=kept_back note=$(grep -m 1 -E 'Depends|Conflicts|Breaks' "$tmp/why" | sed 's/^ *//')
				fi
			fi
			;;
		esac
		line pending "$name" "$arch" "$installed" "$version" "$from" "$s" "$why" "$note"
	done <"$tmp/newer" | head -n 1900
	esm
}

# esm tells what Ubuntu's tools say that a contract would bring: its lists lie apart where there is no contract.
esm() {
	lists=/var/lib/ubuntu-advantage/apt-esm
	[ -d $lists/etc/apt ] || return 0
	apt-get -q -s -o Dir=$lists -o Dir::State::status=/var/lib/dpkg/status upgrade 2>/dev/null | sed -n 's/^Inst \([^ :]*\)[^ ]* \[\([^]]*\)\] (\([^ ]*\) UbuntuESM[^)]*\[\([a-z0-9]*\)\]).*/\1 \4 \2 \3/p' | head -n 500 |
		while read -r n arch old new; do line pending "$n" "$arch" "$old" "$new" UbuntuESM official esm_only 'it takes a contract with the distributor'; done
}

# ---- installing ----

# fam_ready MODE: what was asked has to be what is still right now, and exactly what apt would do.
fam_ready() {
	refresh >"$tmp/fresh"
	[ ! -s "$tmp/fresh" ] || { sed 's/^/the lists could not be refreshed: /' "$tmp/fresh" && return; }
	archives >&2
	plan "$1" || { grep -m 1 '^E: ' "$tmp/sim.$1.err" && return; }
	awk -F "$tab" -v newer="$(cat "$run/newer")" -v out="$tmp/asked.new" '
		FNR == NR { split($1, c, " "); plan[c[2]] = $1; next }
		{
			if ($0 == plan[split($0, a, " ") ? a[2] : ""]) { print >out; next }
			if (!(a[2] in plan)) { print a[2] ": " a[3] " to " a[4] " was asked for, and is not what would be installed now"; next }
			split(plan[a[2]], c, " ")
			if (newer == "1" && a[1] == c[1] && a[3] == c[3] && a[5] == c[5]) { print plan[a[2]] >out; print a[4] " " c[4] >(out ".versions"); next }
			print a[2] ": \"" $0 "\" was asked for, and now it is \"" plan[a[2]] "\""
		}' "$tmp/plan.$1" "$run/asked" >"$tmp/differs"
	if [ -s "$tmp/asked.new.versions" ]; then
		while read -r was is; do dpkg --compare-versions "$is" gt "$was" || echo "version $is is not newer than $was, which was asked for"; done <"$tmp/asked.new.versions" >>"$tmp/differs"
	fi
	[ ! -s "$tmp/differs" ] || { cat "$tmp/differs" && return; }
	sort "$tmp/asked.new" >"$run/asked.new" && sync "$run/asked.new" && mv "$run/asked.new" "$run/asked" || { echo "$run cannot be written" && return; }
	if [ "$1" = full ] && grep -q -E '^remove (proxmox-ve|proxmox-backup-server|proxmox-mailgateway):' "$run/asked"; then
		echo 'it would remove the package that makes this machine what it is'
		return
	fi
	view exact
	get exact -s >"$tmp/sim.exact" 2>"$tmp/sim.exact.err" || { grep -m 1 '^E: ' "$tmp/sim.exact.err" || echo 'apt-get cannot work out what to do' && return; }
	changes <"$tmp/sim.exact" | cut -f 1 >"$tmp/exact"
	awk 'FNR == NR { would[$0]; next } { asked[$0]; if (!($0 in would)) print "\"" $0 "\" would not be done" } END { for (w in would) if (!(w in asked)) print "\"" w "\" would be done too" }' "$tmp/exact" "$run/asked" | tee "$tmp/inexact"
	[ ! -s "$tmp/inexact" ] || return 0
	sizes "$run/asked" >/dev/null
	space | awk -F "$tab" '$3 < $4 { printf "%s has %d KiB free, and %d KiB are needed: there is no space for it\n", $2, $3 / 1024, $4 / 1024 }'
}

# fam_fetch fetches everything before anything is changed.
fam_fetch() {
	get exact --download-only >&2 || { tail -n 20 "$run/log" | grep '^E: ' | cut -c 4- | sed 's/^/it could not be fetched: /' | grep . || echo 'it could not be fetched'; }
}

# quiet: nobody is there to answer. A configuration file that was changed here stays; the new one is laid beside it. Services are
# left for whoever decides that they are restarted; what should be is told.
quiet() {
	DEBIAN_FRONTEND=noninteractive DEBIAN_PRIORITY=critical DEBCONF_NONINTERACTIVE_SEEN=true DEBCONF_NOWARNINGS=yes APT_LISTCHANGES_FRONTEND=none
	NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l NEEDRESTART_UI=NeedRestart::UI::stdio UCF_FORCE_CONFFOLD=1 LC_ALL=C.UTF-8
	export DEBIAN_FRONTEND DEBIAN_PRIORITY DEBCONF_NONINTERACTIVE_SEEN DEBCONF_NOWARNINGS APT_LISTCHANGES_FRONTEND NEEDRESTART_SUSPEND NEEDRESTART_MODE NEEDRESTART_UI UCF_FORCE_CONFFOLD LC_ALL
}
conf_options='--force-confdef --force-confold --no-force-confnew --no-force-confask'

# last_word has apt ask the hook.
last_word() { echo "DPkg::Pre-Install-Pkgs:: \"$HELPER hook\"; DPkg::Tools::Options::$HELPER::Version \"3\";"; }

# fam_install MODE: apt asks the hook, with what dpkg is about to get, at the last moment.
fam_install() {
	quiet
	{
		echo '#clear DPkg::Options;'
		for o in $conf_options; do echo "DPkg::Options:: \"$o\";"; done
		last_word
		echo 'Dpkg::Use-Pty "0"; DPkg::Lock::Timeout "300"; APT::Keep-Downloaded-Packages "false";'
	} >>"$tmp/exact.conf"
	apt-mark showmanual >"$tmp/manual"
	get exact
	code=$?
	# An upgrade leaves these marks alone; were it otherwise, they are put back.
	apt-mark showmanual | awk 'FNR == NR { was[$0]; next } !($0 in was)' "$tmp/manual" - >"$tmp/marked"
	[ ! -s "$tmp/marked" ] || xargs -r apt-mark auto <"$tmp/marked"
	restarts
	return $code
}

# fam_hook compares, in apt's protocol 3: name, old version, architecture and multi-arch, direction, the same of the new, and a file
# or what else is done. A repair configures whatever is there; what it brings is as it was simulated.
fam_hook() {
	cat >"$tmp/hook"
	exact=$run/asked
	[ "$(cat "$run/mode")" != repair ] || exact=$run/exact
	awk -v exact="$exact" '
		FILENAME == exact { split($2, p, ":"); asked[$1 == "remove" ? "remove " p[1] " " $3 : $1 " " $2 " " $3 " " $4]; named[p[1]]; n++; next }
		FNR == 1 && $0 != "VERSION 3" { print "apt speaks another protocol: " $0; exit }
		!lines { if ($0 == "") lines = 1; next }
		$NF == "**CONFIGURE**" { if (exact !~ /\/exact$/ && !($1 in named)) print "dpkg would configure " $1 ", which was not asked for"; next }
		{
			what = $NF == "**REMOVE**" ? "remove " $1 " " $2 : ($2 == "-" ? "install " : "upgrade ") $1 ":" $7 " " $2 " " $6
			if (!(what in asked)) print "dpkg would " what ", which was not asked for"
			else if (!(what in seen)) { seen[what]; n-- }
		}
		END { if (!lines) print "apt did not say what it is about to do"; else if (n != 0) print n " of the changes asked for would not be done" }' "$exact" "$tmp/hook" >"$tmp/stop" || echo 'what dpkg is about to get could not be read' >>"$tmp/stop"
	if [ -s "$tmp/stop" ]; then
		cp "$tmp/stop" "$run/stopped"
		cat "$tmp/stop" >&2
		exit 1
	fi
}

# restarts says which services still use what was replaced. needrestart before 3.8 can be made to run code of any account's as root,
# so it is not asked; what processes themselves hold of files that are gone is seen in any case, without running anything.
restarts() {
	unseen=
	if [ ! -x /usr/sbin/needrestart ]; then
		services=$(old_files)
	elif version=$(dpkg-query -W -f '${Version}' needrestart 2>/dev/null) && dpkg --compare-versions "$version" ge 3.8; then
		services=$(unset NEEDRESTART_SUSPEND; timeout 60 needrestart -b -r l 2>/dev/null </dev/null | sed -n 's/^NEEDRESTART-SVC: *//p' | head -n 40 | tr '\n' ' ')
	else
		services=$(old_files)
		unseen="programs of Perl, Python and the like were not checked for replaced files: needrestart ${version:-of no known version} is older than 3.8 and is not run"
	fi
	{
		[ -z "$services" ] || echo "these services still use files that were replaced, until they are restarted: $services"
		[ -z "$unseen" ] || echo "$unseen"
	} >"$tmp/note"
	[ ! -s "$tmp/note" ] || cp "$tmp/note" "$run/note"
}

# old_files names the services with a process that runs code of a file which is gone.
old_files() {
	grep -l -E '^[^ ]+ ..x[^ ]* .* /(usr|lib|lib64|bin|sbin|opt)/.* \(deleted\)$' /proc/[0-9]*/maps 2>/dev/null | cut -d / -f 3 | while read -r pid; do
		sed -n 's|^0::/system\.slice/\(.*/\)\{0,1\}\([^/]*\.service\).*|\2|p; s|^1:name=systemd:/system\.slice/\(.*/\)\{0,1\}\([^/]*\.service\).*|\2|p' "/proc/$pid/cgroup" 2>/dev/null
	done | grep -v '^castellan-' | sort -u | head -n 40 | tr '\n' ' '
}

# fam_repair finishes what was begun. Where dpkg cannot do that with what is here, apt brings those packages anew that lie half unpacked,
# and what was asked for if that is all that it would do. What it would install or remove beyond that stands in no plan, so that it
# is told and not done.
fam_repair() {
	quiet
	dpkg $conf_options --configure -a
	code=$?
	apt-get -o Debug::NoLocking=true -qq check && return $code
	archives
	mode=all
	view all
	if ! get_fix -s >"$tmp/fix" 2>&1; then
		echo "it was not completed: apt cannot work out what would complete it: $(grep -m 1 '^E: ' "$tmp/fix" | cut -c 4-300). A person can look at it in the guest, or go back to the snapshot" | tee "$run/note"
		return 1
	fi
	changes <"$tmp/fix" | cut -f 1 >"$run/exact"
	fixes <"$tmp/fix" | cut -f 1 | sort >"$tmp/would"
	if [ -s "$run/asked" ]; then
		if ! sort "$run/asked" | cmp -s - "$tmp/would"; then
			echo "it was not completed: apt-get -f install would not do what the plan names, but: $(head -n 20 "$tmp/would" | tr '\n' ';'). Plan it anew" | tee "$run/note"
			return 1
		fi
	else
		# In the version that lies there, and in no other: a newer one is an upgrade that nobody has seen.
		dpkg-query -W -f='${db:Status-Abbrev}|${Package}:${Architecture} ${Version}\n' 2>/dev/null | sed -n -E 's/^(.H.|..R)\|//p' >"$tmp/half"
		awk -v half="$tmp/half" 'FILENAME == half { as_is[$0]; next } $1 == "remove" || !(($2 " " $4) in as_is) { sub(/:.*/, "", $2); print $1, $2, $1 == "upgrade" ? " (" $4 ")" : "" }' "$tmp/half" "$tmp/would" >"$tmp/more"
		add=$(sed -n -E 's/^(install|upgrade) ([^ ]*) /\2/p' "$tmp/more" | head -n 20 | tr '\n' ' ')
		gone=$(sed -n 's/^remove \([^ ]*\).*/\1/p' "$tmp/more" | head -n 20 | tr '\n' ' ')
		if [ -n "$add$gone" ]; then
			echo "it was not completed: apt-get -f install would${add:+ install ${add% }}${gone:+${add:+ and} remove ${gone% }}, which no plan names. Plan it anew; what would remove something is for a person in the guest" | tee "$run/note"
			return 1
		fi
	fi
	printf '#clear DPkg::Options;\n' >>"$tmp/all.conf"
	for o in $conf_options; do echo "DPkg::Options:: \"$o\";" >>"$tmp/all.conf"; done
	last_word >>"$tmp/all.conf"
	get_fix -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 -o APT::Get::Remove=false
}

fam_kept() {
	find /etc -xdev -type f \( -name '*.dpkg-dist' -o -name '*.dpkg-new' -o -name '*.ucf-dist' \) -cnewer "$run/began" 2>/dev/null | sed 's/\.[a-z-]*$//' | sort -u | lines conffile
}
