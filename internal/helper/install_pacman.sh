# ---- pacman ----
known='of its family it knows Arch Linux'
sshd_package=openssh

supported() { has pacman && [ "$ID" = arch ]; }
refresh_lists() { :; }
# To fetch newer lists for one package would leave the system half upgraded.
install_package() { pacman -S --noconfirm --needed "$1"; }
make_account() { useradd --system --user-group --home-dir "$home" --no-create-home --shell /bin/sh --comment 'castellan looks after packages' "$account" >&2; }
automatic() { [ "$automatic" != on ] || line note 'Arch Linux has no automatic updates'; }
