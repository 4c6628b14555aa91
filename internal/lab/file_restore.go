package lab

import (
	zipfile "archive/zip"
	"bytes"
	"encoding/base64"
	"path"
	"sort"
	"strings"
	"time"
)

// backedUpFiles are what every simulated backup holds below its file system, by path.
var backedUpFiles = map[string]string{
	"/etc/hostname":         "guest\n",
	"/etc/hosts":            "127.0.0.1 localhost\n",
	"/etc/nginx/nginx.conf": "worker_processes auto;\n",
	"/srv/data/report.csv":  "day,visits\n2025-01-01,17\n",
}

// fileRestore finds the archive that a file-level restore is asked of, and what its paths lead to.
func fileRestore(c *call) (files map[string]string, at string, err error) {
	id := c.str("volume")
	switch {
	case strings.Contains(id, ":") && storeOf(id) != c.str("storage"):
		return nil, "", bad("volume", "storage ID mismatch (%s != %s).", storeOf(id), c.str("storage"))
	case !strings.Contains(id, ":"):
		id = c.str("storage") + ":backup/" + strings.TrimPrefix(id, "backup/")
	}
	st, err := c.s.usable(c.str("storage"), c.node.name)
	if err != nil {
		return nil, "", err
	}
	v := c.s.vol(c.node.name, id)
	if v != nil && !c.mayVolume(v) || v == nil && !c.s.may(c.user.id(), "/storage/"+st.id, "Datastore.Allocate") {
		return nil, "", denied("")
	}
	if st.typ() != "pbs" {
		return nil, "", bad("storage", "Only PBS storages supported for file-restore.")
	}
	if v == nil || v.archive == nil {
		return nil, "", die("proxmox-file-restore failed: Error: HTTP Error 404 Not Found: snapshot does not exist.")
	}
	root := "/root.pxar.didx"
	if v.archive.kind == kindQemu {
		root = "/drive-scsi0.img.fidx/part/1"
	}
	files = map[string]string{}
	for name, text := range backedUpFiles {
		files[root+name] = text
	}
	for name, text := range c.l.cfg.BackupFiles {
		files[root+name] = text
	}
	at = c.str("filepath")
	if at == "" || at == "/" {
		return files, "/", nil
	}
	raw, err := base64.StdEncoding.DecodeString(at)
	if err != nil {
		return nil, "", die("proxmox-file-restore failed: Error: Invalid byte in base64 path.")
	}
	return files, "/" + strings.Trim(string(raw), "/"), nil
}

// below lists the paths of the files within a folder, sorted.
func below(files map[string]string, folder string) (out []string) {
	prefix := strings.TrimSuffix(folder, "/") + "/"
	for name := range files {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

func listBackupFiles(c *call) (any, error) {
	files, at, err := fileRestore(c)
	if err != nil {
		return nil, err
	}
	inside := below(files, at)
	if _, file := files[at]; !file && len(inside) == 0 {
		return nil, die("proxmox-file-restore failed: Error: path %q not found", at)
	}
	out, seen := []M{}, map[string]bool{}
	for _, name := range inside {
		first, rest, deeper := strings.Cut(strings.TrimPrefix(name, strings.TrimSuffix(at, "/")+"/"), "/")
		full := strings.TrimSuffix(at, "/") + "/" + first
		if seen[full] {
			continue
		}
		seen[full] = true
		row := M{"filepath": base64.StdEncoding.EncodeToString([]byte(full)), "text": strings.ToValidUTF8(first, "\uFFFD"), "type": "f", "leaf": 1}
		switch {
		case at == "/":
			row["type"], row["leaf"] = "v", 0
		case deeper && rest != "":
			row["type"], row["leaf"], row["mtime"] = "d", 0, 1735689600
		default:
			row["size"], row["mtime"] = len(files[full]), 1735689600
		}
		out = append(out, row)
	}
	return out, nil
}

func downloadBackupFile(c *call) (any, error) {
	files, at, err := fileRestore(c)
	if err != nil {
		return nil, err
	}
	body, isFile := []byte(files[at]), false
	if _, isFile = files[at]; !isFile {
		body = packed(files, at)
	}
	t := c.s.newTask(c.node, "pbs-download", "", c.user)
	c.s.work(t, 100*time.Millisecond, func() error {
		t.say("Starting download of file: %s", path.Base(at))
		return nil
	})
	// A stream: it has no length, and its end is the end of the connection.
	return &result{raw: &response{status: 200, reason: "OK", ctype: "application/octet-stream", body: body, stream: true}}, nil
}

// packed is a folder as a zip archive.
func packed(files map[string]string, folder string) []byte {
	var out bytes.Buffer
	z := zipfile.NewWriter(&out)
	for _, name := range below(files, folder) {
		if w, err := z.Create(strings.TrimPrefix(name, path.Dir(folder))); err == nil {
			_, _ = w.Write([]byte(files[name])) // a buffer takes everything
		}
	}
	_ = z.Close()
	return out.Bytes()
}
