package foreign_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
)

// A program acts on any of the paths that its question names, so that all of them count.
func TestPathsOf(t *testing.T) {
	for _, tt := range []struct {
		input string
		given []string
		want  []string
	}{
		{`{"file_path":"/etc/shadow"}`, []string{"/w/a"}, []string{"/w/a", "/etc/shadow"}},
		{`{"file_path":"/w/a","file_path":"/etc/shadow","notebook_path":"/n","path":"/p"}`, nil, []string{"/w/a", "/etc/shadow", "/n", "/p"}},
		{`{"filePath":"a","absolutePath":"/b","OLD_PATH":"/c","paths":["/d",7,"/e"],"uri":"file:///f","directories":"/g"}`, nil, []string{"a", "/b", "/c", "/d", "/e", "/f", "/g"}},
		{`{"edits":[{"path":"/deep","text":"/no"}],"files":[{"x":"/no","file":"/in"}],"\u0070ath":"/escaped"}`, nil, []string{"/deep", "/in", "/escaped"}},
		{`{"file_text":"/no","pattern":"/no","path":"","content":"{\"path\":\"/no\"}"}`, nil, nil},
		{`{"path":"/w/a"}`, []string{"/w/a"}, []string{"/w/a"}},
		{`{"path":"routes/$id.tsx","file":"a:b","cwd":"100%"}`, nil, []string{"routes/$id.tsx", "a:b", "100%"}},
		{`{"uri":"file://localhost/etc/shadow"}`, nil, nil},
		{`{"uri":"FILE:///etc/shadow"}`, nil, nil},
		{`{"uri":"file:/etc/shadow"}`, nil, nil},
		{`{"uri":"file:///w/%2e%2e/etc/shadow"}`, nil, nil},
		{`{"uri":"vscode-remote://x/etc/shadow"}`, nil, nil},
		{`{"path":"$HOME/.ssh/id_rsa"}`, nil, nil},
		{`{"path":"/w/a"}`, []string{"${HOME}/.ssh/id_rsa"}, nil},
		{`{"path":"/a","x":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`, nil, nil},
		{`{"paths":[` + strings.TrimSuffix(strings.Repeat(`"/a",`, 500), ",") + `]}`, nil, []string{"/a"}},
	} {
		if got := foreign.PathsOf(gjson.Parse(tt.input), tt.given...); !slices.Equal(got, tt.want) {
			t.Errorf("%.80s: got %q, want %q", tt.input, got, tt.want)
		}
	}
	var many []string
	for i := range foreign.MaxPaths {
		many = append(many, fmt.Sprint("/w/", i))
	}
	if got := foreign.PathsOf(gjson.Parse(`{"path":"/etc/shadow"}`), many...); got != nil {
		t.Errorf("of one path too many, %d", len(got))
	}
	if got := foreign.PathsOf(gjson.Parse(`{}`), many...); len(got) != foreign.MaxPaths {
		t.Errorf("of as many as there may be, %d", len(got))
	}
}
