package gate

// Download says what a step that fetches a file is to bring: the driver gives it to a folder of castellan's own, and the
// answer of the step is a Saved. Its content is part of no answer and no record.
type Download struct {
	Name string `json:"name"`           // what the file is called there, in the words of others: the local name is made of its clean letters
	Size *int64 `json:"size,omitempty"` // in bytes, where the server has told it; a file of another size is not kept
	Zip  bool   `json:"zip,omitempty"`  // a folder, packed by the server; one without its end is not kept
}

// Saved is a file that was fetched. None of its fields is text of outsiders, but for the letters of its name.
type Saved struct {
	Path   string `json:"path"` // on the machine of castellan
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
	// Whole says that it was seen to be whole: of the size that was told, or with its end.
	Whole bool `json:"whole"`
}

// SavedFile is what one step of a plan fetched.
type SavedFile struct {
	Step int `json:"step"`
	Saved
}

// saved lists what the steps of a plan fetched.
func saved(r *PlanRecord) (out []SavedFile) {
	for i, s := range r.Plan.Steps {
		if i < len(r.Steps) && r.Steps[i].Saved != nil {
			out = append(out, SavedFile{Step: s.Number, Saved: *r.Steps[i].Saved})
		}
	}
	return out
}
