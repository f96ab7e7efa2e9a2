package permission_test

import (
	"fmt"
	"testing"

	"nexus.internal/child/permission"
)

func TestAllows(t *testing.T) {
	for _, tt := range []struct {
		preset permission.Preset
		tool   string
		want   bool
	}{
		{permission.Yolo, "shell", true},
		{permission.Trusted, "shell", true},
		{permission.Trusted, "write_file", true},
		{permission.Sandboxed, "read_file", true},
		{permission.Sandboxed, "write_file", true},
		{permission.Sandboxed, "edit_file", true},
		{permission.Sandboxed, "glob", true},
		{permission.Sandboxed, "search_text", true},
		{permission.Sandboxed, "sleep", true},
		{permission.Sandboxed, "shell", false},
		{permission.Sandboxed, "a tool of tomorrow", false},
		{"", "read_file", false},
		{"Trusted", "read_file", false},
	} {
		t.Run(fmt.Sprintf("%s %s", tt.preset, tt.tool), func(t *testing.T) {
			ok, reason := tt.preset.Allows(tt.tool)
			if ok != tt.want {
				t.Errorf("allowed %v, want %v", ok, tt.want)
			}
			if ok != (reason == "") {
				t.Errorf("allowed %v with the reason %q", ok, reason)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name string
		want permission.Preset
		ok   bool
	}{
		{"", permission.Trusted, true},
		{"yolo", permission.Yolo, true},
		{"trusted", permission.Trusted, true},
		{"sandboxed", permission.Sandboxed, true},
		{"YOLO", "", false},
		{"root", "", false},
	} {
		if got, err := permission.Parse(tt.name); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("Parse(%q) = %q, %v", tt.name, got, err)
		}
	}
}

func ExamplePreset_Allows() {
	preset, err := permission.Parse("sandboxed")
	if err != nil {
		panic(err)
	}
	_, reason := preset.Allows("shell")
	fmt.Println(reason)
	// Output: the preset sandboxed does not allow shell: it could reach beyond the working directory
}
