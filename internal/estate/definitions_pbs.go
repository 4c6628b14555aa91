package estate

import (
	"strings"

	"castellan/internal/gate"
)

// backupServer holds what a request to a Backup Server goes by: the job that is run, and the remote server that it, or the
// request, names.
func (d *definitions) backupServer(path string, params map[string]string) {
	remote := params["remote"]
	switch parts := strings.Split(path, "/"); {
	case strings.HasPrefix(path, "/admin/") && strings.HasSuffix(path, "/{id}/run"):
		for _, job := range d.object(parts[2]+" job "+clipTo(params["id"], 60)+" is as it was", "/config/"+parts[2]+"/{id}", map[string]string{"id": params["id"]}) {
			remote = job["remote"]
		}
	case path == "/config/sync/{id}" && remote == "":
		if answer, err := d.read(gate.Read{Operation: "GET " + path, Params: map[string]string{"id": params["id"]}}); err == nil {
			list, _ := rowsOf(answer.Data) // the job as a whole is held as what the request changes
			for _, job := range list {
				remote = job["remote"]
			}
		}
	}
	if remote != "" {
		d.object("remote "+clipTo(remote, 60)+" is as it was", "/config/remote/{name}", map[string]string{"name": remote})
	}
}
