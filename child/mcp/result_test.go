package mcp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/mcp"
)

// broken has content that cannot be read.
const broken = `{"content":[{"type":"text","text":"before"},{"type":"image","data":"no base64!","mimeType":"image/png"},
{"type":"image","data":"UE5H","mimeType":"image/png"}, {"type":"audio","data":5,"mimeType":"audio/wav"},
{"type":"resource","resource":{"uri":"x://y","blob":"?","mimeType":"image/gif"}},{"type":"text","text":"after"}]}`

const whole = `before
[picture, image/png: left out: its data is no base64]
[sound, audio/wav: left out: its data is no base64]
[x://y, image/gif: left out: its data is no base64]
after`

// TestBadContent keeps what is sound of a result, however it is sent.
func TestBadContent(t *testing.T) {
	check := func(t *testing.T, m *mcp.Manager) {
		t.Helper()
		r, err := call(t, m, "mcp_s_t")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, r.Text); diff != "" || len(r.Images) != 1 || r.IsError {
			t.Errorf("%d pictures; text (-want +got):\n%s", len(r.Images), diff)
		}
	}
	line := strings.ReplaceAll(broken, "\n", " ")
	t.Run("a program", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := manage(t, mcp.Options{
				Servers: []mcp.Server{{Name: "s", Command: "x"}}, Images: images{},
				Start: raw(func(_ context.Context, _ string, id int64, out io.Writer) { answer(out, id, line) }),
			})
			m.Prepare(t.Context())
			check(t, m)
		})
	})
	for _, stream := range []bool{false, true} {
		name := "a plain answer"
		if stream {
			name = "a stream"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sessions atomic.Int32
				check(t, httpManager(t, "http://localhost/", mcp.Options{Images: images{}, HTTP: direct{bare(func(w http.ResponseWriter, _ *http.Request, _ string, id int64) {
					if !stream {
						w.Header().Set("Content-Type", "application/json")
						answer(w, id, broken)
						return
					}
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, "id: 1\nevent: message\ndata: ")
					var event strings.Builder
					answer(&event, id, broken)
					io.WriteString(w, strings.ReplaceAll(strings.TrimSpace(event.String()), "\n", "\ndata: ")+"\n\n")
				}, &sessions)}}))
			})
		})
	}
}

// TestTexts is about content that is not written as it should be: it becomes a note, and what is
// sound stays.
func TestTexts(t *testing.T) {
	const none, notWritten = "(no content)", "[left out: it is not written as content is]"
	for _, tc := range []struct {
		name, result           string
		call, resource, prompt string
	}{
		{"a resource", `{"contents":[{"uri":"a","blob":"!"},{"uri":"b","text":"c"},5]}`, none, "[a, : left out: its data is no base64]\nc\n" + notWritten, none},
		{
			"a prompt", `{"messages":[{"role":"user","content":{"type":"image","data":"!"}},{"role":"user","content":"x"}]}`, none, none,
			"user:\n[picture, : left out: its data is no base64]\n" + notWritten,
		},
		{
			"what is no content",
			`{"content":[null,5,[1],{"type":"hologram","data":"UE5H"},{},{"type":"text","text":5},{"type":"resource","resource":{"uri":7}},{"type":"resource"},` +
				`{"type":"text","text":"b","annotations":{"priority":"x"}},{"type":"text","text":"c"}]}`,
			notWritten + "\n" + notWritten + "\n" + notWritten + "\n[hologram: left out: no known kind of content]\n[: left out: no known kind of content]\n" +
				notWritten + "\n" + notWritten + "\n" + notWritten + "\nb\nc", none, none,
		},
		{"structured content", `{"content":[],"structuredContent":{"b":1,"a":"!"}}`, `{"a":"!","b":1}`, none, none},
		{"none at all", `{"structuredContent":null}`, none, none, none},
	} {
		got, err := mcp.Texts([]byte(tc.result))
		if diff := cmp.Diff([3]string{tc.call, tc.resource, tc.prompt}, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tc.name, err, diff)
		}
	}
	for _, result := range []string{`{"content":[` + strings.Repeat("{},", 4096) + `{}]}`, `{"content":{}}`, `[]`, ``} {
		if _, err := mcp.Texts([]byte(result)); err == nil {
			t.Errorf("%.20s is taken", result)
		}
	}
}
