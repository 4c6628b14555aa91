package reach

import (
	"fmt"
	"strings"
	"testing"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

// largeSite has 10,000 guests on one node, all but the first of which run.
func largeSite(b *testing.B, storages string) *opstest.View {
	const guests = 10_000
	var site, rows strings.Builder
	rows.WriteString(`[{"type":"node","node":"pve1","status":"online","maxmem":1,"mem":0}`)
	for i := range guests {
		id := 1000 + i
		status := "running"
		if i == 0 {
			status = "stopped"
		}
		fmt.Fprintf(&rows, `,{"type":"qemu","vmid":%d,"name":"g%d","node":"pve1","status":%q,"template":0}`, id, id, status)
		fmt.Fprintf(&site, "GET /nodes/pve1/qemu/%d/config {\"name\":\"g%d\",\"memory\":\"2048\",\"cores\":2,\"scsi0\":\"s%d:vm-%d-disk-0,size=32G\",\"net0\":\"virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1\",\"boot\":\"order=scsi0\",\"smbios1\":\"uuid=1\"}\n", id, id, i%4+4, id)
	}
	site.WriteString("GET /cluster/resources " + rows.String() + "]\nGET /storage [" + storages + "]\nGET /cluster/backup []\nGET /cluster/replication []\nGET /cluster/tasks []\nGET /nodes/pve1/qemu/1000/pending []\n")
	v, err := opstest.New(site.String())
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// BenchmarkStorage walks the removal of a storage of a site with 10,000 guests, which has been looked at just before.
func BenchmarkStorage(b *testing.B) {
	v := largeSite(b, `{"storage":"s7","type":"lvmthin","content":"images"}`)
	k, err := New(Config{Estate: estate.New(), Catalog: v.Catalog})
	if err != nil {
		b.Fatal(err)
	}
	r := &gate.Request{Product: "pve", Operation: "DELETE /storage/{storage}", Params: []gate.Param{{Name: "storage", Values: []gate.Value{{Text: "s7"}}}}}
	q := gate.WalkQuestion{Steps: []gate.Step{{Number: 1, Target: "lab", API: r, Judgement: gate.Judgement{Effect: gate.EffectDestroy}}}}
	k.Walk(b.Context(), v, q)
	b.ResetTimer()
	for range b.N {
		if out := k.Walk(b.Context(), v, q); len(out.Hits) < 2_500 {
			b.Fatalf("%d hits", len(out.Hits))
		}
	}
}

// BenchmarkStart walks the start of a guest of a site with 10,000 guests that all have their disks on one share and were looked
// at just before: whether another one has its disk too.
func BenchmarkStart(b *testing.B) {
	v := largeSite(b, `{"storage":"s4","type":"nfs","server":"192.0.2.4","export":"/x","content":"images"},{"storage":"s5","type":"nfs","server":"192.0.2.5","export":"/x","content":"images"}`)
	k, err := New(Config{Estate: estate.New(), Catalog: v.Catalog})
	if err != nil {
		b.Fatal(err)
	}
	r := &gate.Request{Product: "pve", Operation: "POST /nodes/{node}/qemu/{vmid}/status/start", Params: []gate.Param{{Name: "node", Values: []gate.Value{{Text: "pve1"}}}, {Name: "vmid", Values: []gate.Value{{Text: "1000"}}}}}
	q := gate.WalkQuestion{Steps: []gate.Step{{Number: 1, Target: "lab", API: r, Judgement: gate.Judgement{Effect: gate.EffectChange}}}}
	if out := k.Walk(b.Context(), v, q); len(out.Hits)+len(out.Unread) > 0 {
		b.Fatalf("%v %v", out.Hits, out.Unread)
	}
	asked := len(v.Asked())
	b.ResetTimer()
	for range b.N {
		k.Walk(b.Context(), v, q)
	}
	b.ReportMetric(float64(len(v.Asked())-asked)/float64(b.N), "reads/op")
}

// BenchmarkStarts walks the start of 500 guests of that site by one request.
func BenchmarkStarts(b *testing.B) {
	v := largeSite(b, `{"storage":"s4","type":"nfs","server":"192.0.2.4","export":"/x","content":"images"}`)
	k, err := New(Config{Estate: estate.New(), Catalog: v.Catalog})
	if err != nil {
		b.Fatal(err)
	}
	var ids []string
	r := &gate.Request{Product: "pve", Operation: "POST /nodes/{node}/startall"}
	q := gate.WalkQuestion{Steps: []gate.Step{{Number: 1, Target: "lab", API: r, Judgement: gate.Judgement{Effect: gate.EffectChange}}}}
	var more strings.Builder
	got, err := v.Read(b.Context(), "lab", gate.Read{Operation: "GET /cluster/resources"})
	if err != nil {
		b.Fatal(err)
	}
	rows := string(got.Data)
	for i := range 500 {
		id := fmt.Sprint(1000 + 4*i)
		ids = append(ids, id)
		rows = strings.Replace(rows, `"vmid":`+id+`,"name":"g`+id+`","node":"pve1","status":"running"`, `"vmid":`+id+`,"name":"g`+id+`","node":"pve1","status":"stopped"`, 1)
		fmt.Fprintf(&more, "GET /nodes/pve1/qemu/%s/pending []\n", id)
	}
	if err := v.Add(more.String() + "GET /cluster/resources " + rows); err != nil {
		b.Fatal(err)
	}
	r.Params = []gate.Param{{Name: "node", Values: []gate.Value{{Text: "pve1"}}}, {Name: "vms", Values: []gate.Value{{Text: strings.Join(ids, ",")}}}}
	k.Walk(b.Context(), v, q)
	b.ResetTimer()
	for range b.N {
		k.Walk(b.Context(), v, q)
	}
}

// BenchmarkStops walks a request that stops all 10,000 guests of a node: what is asked for each must not look at all of them.
func BenchmarkStops(b *testing.B) {
	v := largeSite(b, `{"storage":"s4","type":"nfs","server":"192.0.2.4","export":"/x","content":"images"}`)
	k, err := New(Config{Estate: estate.New(), Catalog: v.Catalog})
	if err != nil {
		b.Fatal(err)
	}
	var pending strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&pending, "GET /nodes/pve1/qemu/%d/pending []\n", 1000+i)
	}
	if err := v.Add(pending.String()); err != nil {
		b.Fatal(err)
	}
	r := &gate.Request{Product: "pve", Operation: "POST /nodes/{node}/stopall", Params: []gate.Param{{Name: "node", Values: []gate.Value{{Text: "pve1"}}}}}
	q := gate.WalkQuestion{Steps: []gate.Step{{Number: 1, Target: "lab", API: r, Judgement: gate.Judgement{Effect: gate.EffectChange}}}}
	k.Walk(b.Context(), v, q)
	b.ResetTimer()
	for range b.N {
		if out := k.Walk(b.Context(), v, q); len(out.Hits) < 9_999 {
			b.Fatalf("%d hits", len(out.Hits))
		}
	}
}
