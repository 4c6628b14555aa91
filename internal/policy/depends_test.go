package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDecisionsRestOnTagsOfFiles: a tag or pool by which a policy of one's own decides is as good as one that grants scope.
func TestDecisionsRestOnTagsOfFiles(t *testing.T) {
	dir := t.TempDir()
	text := `@id("prod") forbid (principal, action == Action::"write", resource) when { resource.tags.contains("Prod") && context.level < 3 };
permit (principal, action == Action::"write", resource) when { resource.kind == "guest" && ["sandbox", "toys"].containsAny(resource.reserved_tags) };
forbid (principal, action == Action::"write", resource) unless { resource.pools.containsAll(["team/web"]) || principal.agent == "claude" };
forbid (principal, action == Action::"write", resource) when { (if context.tainted then resource.tags else ["x"]).contains("mine") };
forbid (principal, action == Action::"write", resource) when { resource.tags == ["only"] };
forbid (principal, action == Action::"write", resource) when { resource.title == "Db" || resource.title like "prod-*" || ["a"].contains(resource.title) };`
	if err := os.WriteFile(filepath.Join(dir, "own.cedar"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Settings: Settings{Capabilities: []string{"config"}, Tags: []string{"agents"}, Files: []string{"own.cedar"}}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	pools, tags, titles := p.Depends()
	if d := cmp.Diff([]string{"Db", "a", "prod-*"}, titles); d != "" {
		t.Errorf("titles (-want +got)\n%s", d)
	}
	if d := cmp.Diff([]string{"team/web"}, pools); d != "" {
		t.Errorf("pools (-want +got)\n%s", d)
	}
	if d := cmp.Diff([]string{"agents", "mine", "only", "prod", "sandbox", "toys", "x"}, tags); d != "" {
		t.Errorf("tags (-want +got)\n%s", d)
	}
	if _, scope := p.GovernedScope(); len(scope) != 1 || scope[0] != "agents" {
		t.Errorf("tags that grant scope: %v", scope)
	}
}

// TestDecisionsThatNameNothing: where a policy asks how many there are, or compares them with each other, each counts.
func TestDecisionsThatNameNothing(t *testing.T) {
	for text, want := range map[string][3][]string{
		`resource.tags.isEmpty()`:                 {nil, {"*"}, nil},
		`resource.pools.isEmpty()`:                {{"*"}, nil, nil},
		`resource.tags.contains(resource.title)`:  {nil, {"*"}, {"*"}},
		`principal.agent == resource.title`:       {nil, nil, {"*"}},
		`resource.kind == "guest"`:                {nil, nil, nil},
		`resource.title like "*" && context.self`: {nil, nil, {"*"}},
	} {
		var a restsOn
		if err := a.take("forbid (principal, action, resource) when { " + text + " };"); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, [3][]string{a.pools, a.tags, a.titles}); d != "" {
			t.Errorf("%s (-want +got)\n%s", text, d)
		}
	}
}
