package policy

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestDocumented keeps the page and the code together: every key, action and attribute is described.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	want := []string{}
	for _, s := range []reflect.Type{reflect.TypeFor[Settings](), reflect.TypeFor[TargetSettings](), reflect.TypeFor[RoleSettings]()} {
		for i := range s.NumField() {
			want = append(want, s.Field(i).Tag.Get("toml"))
		}
	}
	for _, m := range regexp.MustCompile(`(\w+): (?:String|Long|Bool|Set<String>|Caller)\b`).FindAllStringSubmatch(cedarSchema, -1) {
		want = append(want, m[1])
	}
	for _, m := range regexp.MustCompile(`action (\w+)`).FindAllStringSubmatch(cedarSchema, -1) {
		want = append(want, m[1])
	}
	if len(want) < 50 {
		t.Fatalf("only %d words found", len(want))
	}
	for _, w := range want {
		if !strings.Contains(page, "`"+w+"`") && !strings.Contains(page, "policy."+w+".") {
			t.Errorf("docs/policies.md does not describe `%s`", w)
		}
	}
	for _, m := range regexp.MustCompile("(?s)```cedar\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if errs := Check("page", []byte(m[1])); errs != nil {
			t.Errorf("an example of the page is wrong: %v", errs)
		}
	}
}
