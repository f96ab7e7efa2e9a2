package version_test

import (
	"runtime/debug"
	"testing"

	"nexus.internal/cmd/internal/version"
)

func TestOf(t *testing.T) {
	vcs := func(main, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: main}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: modified},
		}}
	}
	for _, test := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string
	}{
		{"make build", "v1.2.3-4-gabcdef0", vcs("(devel)", "true"), "v1.2.3-4-gabcdef0"},
		{"go install of a version", "", vcs("v1.2.3", ""), "v1.2.3"},
		{"go build of a commit", "", vcs("(devel)", "false"), "0123456789ab"},
		{"go build of more than a commit", "", vcs("", "true"), "0123456789ab-dirty"},
		{"go build without version control", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "dev"},
		{"no facts", "", nil, "dev"},
	} {
		if got := version.From(test.linked, test.info); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}
