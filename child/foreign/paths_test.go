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
		{`{"patch":"--- a/x\n+++ b/../y\n@@ -1 +1 @@\n-a\n+b\n"}`, []string{"/w"}, []string{"/w", "b/../y", "y", "../y", "a/x", "x"}},
		{`"diff --git a/x b/x\nrename from x\nrename to /y\n--- /dev/null\n+++ b//etc/cron\t2020\n"`, []string{"/w"}, []string{"/w", "a/x", "x", "b/x", "/y", "b//etc/cron", "/etc/cron"}},
		{`{"diff":"--- a/x\n+++ \"b/\\303\\274\"\n"}`, []string{"/w"}, nil},
		{`{"x":"Index: /e\n===\n@@ -1 +1 @@"}`, []string{"/w"}, []string{"/w", "/e"}},
		{`{"x":"rename from f\nrename to /e\n"}`, []string{"/w"}, []string{"/w", "f", "/e"}},
		{`{"x":"copy from ../f\ncopy to \"e\""}`, []string{"/w"}, []string{"/w", "../f", "\"e\"", "e"}},
		{`{"x":"rename to \"\\145\""}`, []string{"/w"}, nil},
		{`{"x":"--- /e\n@@ -1 +1 @@"}`, []string{"/w"}, []string{"/w", "/e", "e"}},
		{`{"x":"--- link/e\n@@ -1 +1 @@"}`, []string{"/w"}, []string{"/w", "link/e", "e"}},
		{`{"x":"--- PASS: a/b\n--- x\n"}`, []string{"/w"}, []string{"/w"}},
		{`{"x":"*** /e\t2020\n--- b\n***************"}`, []string{"/w"}, []string{"/w", "/e", "e", "b"}},
		{`{"x":"*** Add File: \"/e\"\n"}`, []string{"/w"}, []string{"/w", "\"/e\"", "/e"}},
		{`{"x":"***  Add  File:/e\n"}`, []string{"/w"}, []string{"/w", "/e"}},
		{`{"x":"\u00a0***\u00a0add\u2003file:\ufeff/e\n"}`, []string{"/w"}, []string{"/w", "/e"}},
		{`{"x":"*** Rename File: f -> /e\n"}`, []string{"/w"}, []string{"/w", "f -> /e", "f", "/e"}},
		{`{"x":"a\r--- /e\r@@"}`, []string{"/w"}, []string{"/w", "/e", "e"}},
		{`{"x":"a\u000b*** Add File: /b\f*** Add File: /c\u001d*** Add File: /d\u0085*** Add File: /e\u2028*** Add File: /f\u2029+++ /g"}`, []string{"/w"}, []string{"/w", "/b", "/c", "/d", "/e", "/f", "/g", "g"}},
		{`{"x":"+++ a\u000b/../../e"}`, []string{"/w"}, []string{"/w", "+++ a\v/../../e", "../e", "a\v/../../e", "../../e", "a"}},
		{`"*** Add File: /e\n+x"`, []string{"/w"}, []string{"/w", "/e"}},
		{`"rm -rf x\n+++ e"`, []string{"/w"}, nil},
		// Characters that are not seen.
		{`{"x":"\u00a0/e","y":"\ufeff~/f","z":"/g\u200b","\u2003/h":1,"i":["\u2060../i\u3000"]}`, []string{"/w"}, []string{"/w", "/e", "~/f", "/g", "/h", "../i"}},
		{`{"path":"\u00a0/e"}`, []string{"\u200b/f"}, []string{"\u200b/f", "/f", "\u00a0/e", "/e"}},
		{`{"path":"\ufefffile:///%65"}`, nil, nil},
		{`{"arguments":"\ufeff{\"x\":\"/e\"}"}`, []string{"/w"}, []string{"/w", "/e"}},
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
		{`{"script":"cat"}`, []string{"/w"}, nil},
		{`{"command":"","url":"","x":null}`, []string{"/w"}, []string{"/w"}},
		// The word of a tool for files is no command, as that member alone.
		{`{"command":"view"}`, []string{"/w"}, []string{"/w"}},
		{`{"command":"viewer"}`, []string{"/w"}, nil},
		{`{"command":["view"]}`, []string{"/w"}, nil},
		{`{"Command":"view"}`, []string{"/w"}, nil},
		{`{"commands":"view"}`, []string{"/w"}, nil},
		{`{"x":{"command":"view"}}`, []string{"/w"}, nil},
		{`[{"command":"view"}]`, []string{"/w"}, nil},
		{`{"command":"view","command":"create"}`, []string{"/w"}, nil},
		{`{"command":"view","cmd":"view"}`, []string{"/w"}, nil},
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
	n := foreign.NamesOf(nil, nil, gjson.Parse(`{"url":"https://One.example/a","urls":["http://two.example","https://one.example:443/b","https://one.example:8443","http://one.example:/"],"path":"/a"}`))
	if n.Unclear || !slices.Equal(n.Hosts, []string{"one.example", "two.example:80", "one.example:8443", "one.example:80"}) {
		t.Errorf("hosts: %+v", n)
	}
}

// A command is found wherever it is, also behind what makes a question unclear.
func TestCommands(t *testing.T) {
	for input, want := range map[string]bool{
		`{"path":"a"}`: false, `{"path":"a","command":"view"}`: false, `{"command":"view"}`: true, `{"path":"a","x":[{"Scripts":["a"]}]}`: true,
		`{"uri":"smb://a/b","cmd":"a"}`: true, `{"a":"$HOME","arguments":"{\"cmd\":\"a\"}"}`: true, `"run it"`: true, `"--- /a\n@@"`: false,
		`{"x":` + strings.Repeat("[", 20) + `{"cmd":"a"}` + strings.Repeat("]", 20) + `}`: true,
		`{"x":[` + strings.Repeat("1,", 10_000) + `1],"cmd":"a"}`:                         true,
	} {
		if n := foreign.NamesOf(nil, nil, gjson.Parse(input)); n.Command != want {
			t.Errorf("%.80s: got %v", input, n.Command)
		}
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
