package oracles_test

import (
	"io/fs"
	"net/http"
	"os"
	"path"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/protocol"
)

// fixtures are those of nexus, as seen from here.
var fixtures = os.DirFS("../../fixtures/providers")

// each runs a test for each fixture that the pattern matches.
func each(t *testing.T, pattern string, test func(t *testing.T, name string, data []byte)) {
	t.Helper()
	names, err := fs.Glob(fixtures, pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s matches %d files (%v)", pattern, len(names), err)
	}
	for _, name := range names {
		t.Run(path.Base(name), func(t *testing.T) {
			data, err := fs.ReadFile(fixtures, name)
			if err != nil {
				t.Fatal(err)
			}
			test(t, path.Base(name), data)
		})
	}
}

// client answers every request with a stream.
func client(stream []byte) *http.Client { return &http.Client{Transport: httpapitest.Canned(stream)} }

var hello = provider.Request{Model: "model", Messages: []protocol.Message{{Role: protocol.RoleUser, Content: "hello"}}}

// meaning is what an answer comes to.
type meaning struct {
	Failed         bool // then nothing else counts
	Text, Thinking string
	Calls          []call
	Opaque         []string // signatures of reasoning and hidden reasoning, of Anthropic's answers
	Usage          usage
	Model          string
	Reason         provider.FinishReason
}

// call has its input as the model wrote it.
type call struct{ ID, Name, Input string }

// usage counts tokens. Input holds those of the cache.
type usage struct{ Input, Output, CacheRead, CacheCreation uint64 }

// ours is what the child makes of an answer.
func ours(t *testing.T, p provider.Provider) (m meaning) {
	t.Helper()
	deltas, err := httpapitest.Collect(t.Context(), p, hello)
	if err != nil {
		return meaning{Failed: true}
	}
	for _, delta := range deltas {
		switch delta := delta.(type) {
		case provider.Text:
			m.Text += delta.Text
		case provider.Thinking:
			m.Thinking += delta.Text
		case provider.Call:
			input := string(delta.Input)
			if delta.Input.Kind() == '"' { // it was not JSON
				input = unquoted(t, delta.Input)
			}
			m.Calls = append(m.Calls, call{delta.ID, delta.Name, input})
		case provider.ThinkingSignature:
			m.Opaque = opaque(t, delta.Text)
		case provider.Stop:
			m.Reason = delta.Reason
			u := delta.Usage
			if !u.Estimated { // the SDKs have only what the service counts
				m.Usage = usage{u.InputTokens, u.OutputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens}
			}
			if u.Model != nil {
				m.Model = *u.Model
			}
		}
	}
	return m
}

// opaque is what the service wants back beside the text of its reasoning. What
// OpenRouter wants is an array, of which the SDK knows nothing.
func opaque(t *testing.T, signature string) (data []string) {
	t.Helper()
	var layout httpapi.ReasoningBlocks
	if err := json.Unmarshal([]byte(signature), &layout); err != nil {
		t.Fatal(err)
	}
	for _, b := range layout.Blocks {
		if b.Opaque != "" && b.Kind != "reasoning_details" {
			data = append(data, b.Opaque)
		}
	}
	return data
}

func unquoted(t *testing.T, literal jsontext.Value) string {
	t.Helper()
	text, err := jsontext.AppendUnquote(nil, literal)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// compare fails the test unless both say the same.
func compare[T any](t *testing.T, theirs, ours T) {
	t.Helper()
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("-SDK +nexus\n%s", diff)
	}
}

// fault is a service's error.
type fault struct{ Code, Message string }

// compareErrors compares what is made of the bodies of refusals. theirs asks the
// service at a URL with the SDK.
func compareErrors(t *testing.T, theirs func(url string) fault, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		server := httpapitest.Serve(t, httpapitest.Status(http.StatusTooManyRequests, body, "Retry-After", "0"))
		got := httpapi.ReadError([]byte(body))
		compare(t, theirs(server.URL), fault{got.Code, got.Message})
	}
}

// compareModels compares what is made of a list of models, and how it is asked for.
// theirs asks the service at a URL with the SDK.
func compareModels(t *testing.T, list string, theirs func(url string) []protocol.Model, ours func(url string) provider.Provider) {
	t.Helper()
	server := httpapitest.Serve(t, httpapitest.Status(http.StatusOK, list), httpapitest.Status(http.StatusOK, list))
	got, err := ours(server.URL).Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, theirs(server.URL), got)
	ourRequest, _ := server.Request(0)
	theirRequest, _ := server.Request(1)
	compareHeaders(t, theirRequest, ourRequest)
}

// compareRequests compares bodies as JSON, but for members of their messages
// that the SDK does not know. That an answer is to be streamed is no member for
// the SDKs.
func compareRequests(t *testing.T, theirs, ours []byte, unknown ...string) {
	t.Helper()
	read := func(body []byte) (object map[string]any) {
		if err := json.Unmarshal(body, &object); err != nil {
			t.Fatal(err)
		}
		delete(object, "stream")
		messages, _ := object["messages"].([]any)
		for _, message := range messages {
			for _, name := range unknown {
				delete(message.(map[string]any), name)
			}
		}
		return object
	}
	compare(t, read(theirs), read(ours))
}

// compareHeaders compares what services look at.
func compareHeaders(t *testing.T, theirs, ours *http.Request) {
	t.Helper()
	type seen struct{ target, accept, key, bearer, version string }
	read := func(r *http.Request) seen {
		h := r.Header
		return seen{r.RequestURI, h.Get("Accept"), h.Get("X-Api-Key"), h.Get("Authorization"), h.Get("Anthropic-Version")}
	}
	if a, b := read(theirs), read(ours); a != b {
		t.Errorf("-SDK +nexus\n-%+v\n+%+v", a, b)
	}
}
