package foreign_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
)

// paths are those by which a question about files is decided; nil if they are not all known.
func paths(n foreign.Names) []string {
	var q foreign.Question
	q.OfFiles(n, false)
	return q.Paths
}

// A program acts on any of the paths that its question names, so that all of them count.
func TestNames(t *testing.T) {
	for _, tt := range []struct {
		input string
		given []string
		want  []string
	}{
		{`{"file_path":"/etc/shadow"}`, []string{"/w/a"}, []string{"/w/a", "/etc/shadow"}},
		{`{"file_path":"/w/a","file_path":"/etc/shadow","notebook_path":"/n","path":"/p"}`, nil, []string{"/w/a", "/etc/shadow", "/n", "/p"}},
		{`{"filePath":"a","absolutePath":"/b","OLD_PATH":"/c","paths":["/d",7,"/e"],"uri":"file:///f","directories":"/g"}`, nil, []string{"a", "/b", "/c", "/d", "/e", "/f", "/g"}},
		{`{"edits":[{"path":"/deep","text":"no"}],"files":[{"x":"no","file":"/in"}],"\u0070ath":"/escaped"}`, nil, []string{"/deep", "/in", "/escaped"}},
		{`{"path":"/w/a"}`, []string{"/w/a"}, []string{"/w/a"}},
		{`{"path":"routes/$id.tsx","file":"a:b","cwd":"100%"}`, nil, []string{"routes/$id.tsx", "a:b", "100%"}},
		// A text alone does not say that a call is about a file.
		{`{"file_text":"/no","pattern":"/no","path":"","content":"{\"path\":\"/no\"}"}`, nil, nil},
		{`{"src":"/w/a"}`, nil, nil},
		// Every text that is a path as a whole counts, whatever it is called.
		{`{"from":"/w/a","to":"/e"}`, []string{"/w"}, []string{"/w", "/w/a", "/e"}},
		{`{"src":"link/x","target":"b c"}`, []string{"/w"}, []string{"/w", "link/x", "b c"}},
		{`{"changes":{"/e":{"type":"add"},"b":{},"../c":1}}`, []string{"/w"}, []string{"/w", "/e", "../c"}},
		{`{"x":[["/e",{"name":"~/f"}],"g/../../h","..","~"]}`, []string{"/w"}, []string{"/w", "/e", "~/f", "g/../../h", "../h", "..", "~"}},
		{`{"x":" \"/e f\"\n","y":"//g","z":"\t../h"}`, []string{"/w"}, []string{"/w", "/e f", "//g", "../h"}},
		{`{"path":" /e"}`, nil, []string{" /e", "/e"}},
		{`{"x":"/w/a\n/../../e"}`, []string{"/w"}, []string{"/w", "/w/a\n/../../e", "/e"}},
		{`{"arguments":"{\"x\":[\"/e\"]}"}`, []string{"/w"}, []string{"/w", "/e"}},
		{`"/e"`, []string{"/w"}, []string{"/w", "/e"}},
		{`["/e","a"]`, []string{"/w"}, []string{"/w", "a", "/e"}},
		{`"cat /e"`, []string{"/w"}, nil},
		{`["cat","/e f","-n x"]`, []string{"/w"}, nil},
		// No contents.
		{`{"path":"/w/a","content":"// a\n/b\n","new_string":"// see /b","old_string":"use /b","text":"a ../b","x":"'../lib'"}`, nil, []string{"/w/a", "../lib"}},
		{`{"path":"/w/a","content":"/* a */\nimport '../../b'\n\nb()\n","text":"/etc/shadow\n","skip":"/e"}`, nil, []string{"/w/a", "/etc/shadow"}},
		// Files of patches.
		{`{"patch":"*** Begin Patch\n*** Add File: /e\n+x\n*** Update File: b\n*** Move to: ../c\n*** End Patch"}`, []string{"/w"}, []string{"/w", "/e", "b", "../c"}},
		{`{"patch":"--- a/x\n+++ b/../y\n@@ -1 +1 @@\n-a\n+b\n"}`, []string{"/w"}, []string{"/w", "a/x", "x", "b/../y", "y", "../y"}},
		{`"diff --git a/x b/x\nrename from x\nrename to /y\n--- /dev/null\n+++ b//etc/cron\t2020\n"`, []string{"/w"}, []string{"/w", "a/x", "x", "b/x", "/y", "b//etc/cron", "/etc/cron"}},
		{`{"diff":"--- a/x\n+++ \"b/\\303\\274\"\n"}`, []string{"/w"}, nil},
		// What may lead elsewhere.
		{`{"uri":"file://localhost/etc/shadow"}`, nil, nil},
		{`{"uri":"FILE:///etc/shadow"}`, nil, nil},
		{`{"uri":"file:/etc/shadow"}`, nil, nil},
		{`{"uri":"file:///w/%2e%2e/etc/shadow"}`, nil, nil},
		{`{"uri":"vscode-remote://x/etc/shadow"}`, nil, nil},
		{`{"x":"file:/etc/shadow"}`, []string{"/w"}, nil},
		{`{"x":"file:///e"}`, []string{"/w"}, []string{"/w", "/e"}},
		{`{"x":"smb://e/f"}`, []string{"/w"}, nil},
		{`{"x":"https://e/f"}`, []string{"/w"}, nil},
		{`{"imageUrl":"e"}`, []string{"/w"}, nil},
		{`{"x":"${HOME}/e"}`, []string{"/w"}, nil},
		{`{"x":"~root/e"}`, []string{"/w"}, nil},
		{`{"glob":"{a,/etc}/*"}`, []string{"/w"}, nil},
		{`{"pattern":"a..b"}`, []string{"/w"}, []string{"/w"}},
		{`{"command":"cat /etc/shadow"}`, []string{"/w"}, nil},
		{`{"x":{"CMD":["cat"]}}`, []string{"/w"}, nil},
		{`{"command":"","url":"","x":null}`, []string{"/w"}, []string{"/w"}},
		{`{"path":"$HOME/.ssh/id_rsa"}`, nil, nil},
		{`{"path":"/w/a"}`, []string{"${HOME}/.ssh/id_rsa"}, nil},
		{`{"path":"/a","x":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`, nil, nil},
		{`{"path":"/a","x":[` + strings.Repeat("1,", 10_000) + `1]}`, nil, nil},
		{`{"path":"/a","x":"/e` + strings.Repeat("/.", 5000) + `"}`, nil, nil},
		{`{"path":"/a","x":"/` + strings.Repeat("e", 5000) + `"}`, nil, []string{"/a"}}, // the kernel takes no such path
		{`{"paths":[` + strings.TrimSuffix(strings.Repeat(`"/a",`, 500), ",") + `]}`, nil, []string{"/a"}},
	} {
		if got := paths(foreign.NamesOf([]string{"skip"}, tt.given, gjson.Parse(tt.input))); !slices.Equal(got, tt.want) {
			t.Errorf("%.80s: got %q, want %q", tt.input, got, tt.want)
		}
	}
	var many []string
	for i := range foreign.MaxPaths {
		many = append(many, fmt.Sprint("/w/", i))
	}
	if got := paths(foreign.NamesOf(nil, many, gjson.Parse(`{"path":"/etc/shadow"}`))); got != nil {
		t.Errorf("of one path too many, %d", len(got))
	}
	if got := paths(foreign.NamesOf(nil, many, gjson.Parse(`{}`))); len(got) != foreign.MaxPaths {
		t.Errorf("of as many as there may be, %d", len(got))
	}
	n := foreign.NamesOf(nil, nil, gjson.Parse(`{"url":"https://One.example/a","urls":["http://two.example","https://one.example/b"],"path":"/a"}`))
	if n.Unclear || !slices.Equal(n.Hosts, []string{"one.example", "two.example"}) {
		t.Errorf("hosts: %+v", n)
	}
}

// Whatever a member is called, and whatever stands beside it, a file outside of the directory is found in its text, or the question is unclear.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"target", "command", "url", "path", "", "*** Add File: x", "a/../b"} {
		f.Add(name, "--- a/x\n+++ b/y", "etc/shadow")
	}
	f.Fuzz(func(t *testing.T, name, other, file string) {
		quoted := func(text string) string {
			out, _ := jsontext.AppendQuote(nil, text) // what is not UTF-8 is replaced
			return string(out)
		}
		file = "/" + strings.Map(func(r rune) rune {
			if r < 'a' || r > 'z' {
				return '/'
			}
			return r
		}, file)
		input := gjson.Parse(`{"path":"a","x":[` + quoted(other) + `,{` + quoted(name) + `:` + quoted(file) + `}]}`)
		n := foreign.NamesOf(nil, nil, input)
		if !n.Unclear && !slices.Contains(n.Paths, file) {
			t.Errorf("%s: got %+v", input.Raw, n)
		}
	})
}
