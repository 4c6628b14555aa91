package lane

// diskProbes tell of file systems and disks.
func diskProbes() []Probe {
	remote := Arg{Name: "remote", Kind: Enum, Summary: "count network file systems too; one whose server is gone can hold the probe up to its time limit", Enum: []string{"no", "yes"}, Default: "no"}
	folder := Arg{Name: "path", Kind: Path, Summary: "the folder to look into; other file systems mounted below are left out", Default: "/"}
	return []Probe{
		{Name: "disk", Summary: "Space of the mounted file systems, in KiB (df)", Where: anywhere, Args: []Arg{remote}, build: func(v values) Invocation {
			return program("df", "-P", "-T", "-k").with(v["remote"] == "no", "-l").partial(1).other(1).or(program("df", "-P", "-T", "-k").partial(1))
		}},
		{Name: "inodes", Summary: "Inodes of the mounted file systems (df -i)", Where: anywhere, Args: []Arg{remote}, build: func(v values) Invocation {
			return program("df", "-P", "-i").with(v["remote"] == "no", "-l").partial(1).other(1).or(program("df", "-P", "-i").partial(1))
		}},
		{Name: "disk_top", Summary: "What takes the space below a folder: folders and files of at least so many MiB, in KiB (du)", Where: anywhere, Args: []Arg{folder,
			{Name: "depth", Kind: Number, Summary: "how many folders deep", Default: "3", Min: 1, Max: 8},
			{Name: "min", Kind: Number, Summary: "MiB from which one is listed", Default: "100", Min: 1, Max: 1 << 20},
		}, build: func(v values) Invocation {
			return program("du", "-x", "-k", "-a", "-d", v["depth"], "-t", v["min"]+"M", "--", v["path"]).partial(1).other(1).
				or(program("du", "-x", "-k", "-d", v["depth"], "--", v["path"]).partial(1))
		}},
		{Name: "big_files", Summary: "Files of at least so many MiB below a folder: bytes, day of the last change, path (find)", Where: anywhere, Args: []Arg{folder,
			{Name: "min", Kind: Number, Summary: "MiB from which one is listed", Default: "100", Min: 1, Max: 1 << 20},
		}, build: func(v values) Invocation {
			find := func(more ...string) Invocation {
				return program("find", v["path"], "-xdev", "-type", "f", "-size", "+"+v["min"]+"M").with(true, more...)
			}
			// find answers 1 for a folder that vanished meanwhile as for an option that it does not know.
			return find("-printf", `%s %TY-%Tm-%Td %p\n`).partial(1).other(1).or(program("find", v["path"], "-xdev", "-type", "f", "-size", "+"+v["min"]+"000k").partial(1))
		}},
		fixed("mounts", "What is mounted where", anywhere, program("cat", "/proc/self/mounts")),
		fixed("deleted_files", "Files that are deleted and still held open, which take space", anywhere,
			program("lsof", "-n", "-P", "-w", "+L1").partial(1).
				or(program("find", "/proc", "-mindepth", "3", "-maxdepth", "3", "-path", "/proc/[0-9]*/fd/*", "-lname", "*(deleted)", "-printf", `%p %l\n`).ok(1))).root(),
		fixed("block_devices", "Disks and partitions with size, file system and mount point (lsblk)", anywhere,
			program("lsblk", "--bytes", "--output=NAME,TYPE,SIZE,RO,ROTA,FSTYPE,MOUNTPOINT,MODEL,SERIAL").or(program("cat", "/proc/partitions"))),
	}
}
