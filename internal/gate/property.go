package gate

import "strings"

// PropertyValue returns one key of a property string such as "virtio=BC:24:11:00:00:01,bridge=vmbr0". The key "-"
// is the first element when it has no name ("local:101/vm-101-disk-0.raw,size=8G").
func PropertyValue(text, key string) (string, bool) {
	for i, part := range strings.Split(text, ",") {
		name, value, named := strings.Cut(part, "=")
		switch {
		case !named && i == 0 && key == "-":
			return strings.TrimSpace(part), true
		case named && strings.TrimSpace(name) == key:
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
