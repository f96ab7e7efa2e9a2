package transcript_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/fixtures"
	"nexus.internal/protocol/transcript"
)

// A summary says of a session, cut off anywhere, what all of it says.
func TestSummarize(t *testing.T) {
	data := encode(t, append(every[:len(every):len(every)], every[2], every[4])...)
	for cut := range len(data) + 1 {
		sameAsParsed(t, data[:cut])
	}
	spaced := bytes.ReplaceAll(data, []byte(`{"type":"message"`), []byte(`{ "type": "message"`))
	sameAsParsed(t, spaced)
	damaged := bytes.Replace(encode(t, every[0], every[2]), []byte(`"at":"`), []byte(`"at":"never `), 1)
	sameAsParsed(t, bytes.TrimSuffix(damaged, []byte("\n"))) // it is passed over where it may be torn
}

func sameAsParsed(t *testing.T, data []byte) {
	t.Helper()
	state, _, err := transcript.Parse(data)
	if err != nil {
		return
	}
	got, err := transcript.Summarize(data)
	want := transcript.Summary{Header: state.Header, Settings: state.Settings, Messages: uint64(len(state.Messages))}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("summary of %q: %v (-parsed +summary):\n%s", data, err, diff)
	}
}

func TestSummarizeDamaged(t *testing.T) {
	good := string(encode(t, every[:7]...))
	later := strings.Replace(good, `"version":1`, `"version":9`, 1)
	for name, text := range map[string]string{
		"no session":                   "hello\n",
		"a message that is no JSON":    strings.Replace(good, `"role":"user"`, `"role":"us`, 1),
		"a message that is not UTF-8":  strings.Replace(good, "read a.txt", "read \xff", 1),
		"no header":                    good[strings.IndexByte(good, '\n')+1:],
		"a later version":              later,
		"a compaction of what is none": string(encode(t, every[0], every[7])),
	} {
		_, err := transcript.Summarize([]byte(text))
		if _, ok := errors.AsType[*transcript.LineError](err); !ok {
			t.Errorf("%s: got %v, want the line", name, err)
		}
	}
}

func TestRenamed(t *testing.T) {
	data := encode(t, every[:3]...)
	header := every[0].(transcript.Header)
	header.Name, header.SessionID = "other", "22222222-3333-4444-8555-666666666666"
	got, err := transcript.Renamed(append(data, `{"type":"mess`...), header)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(encode(t, header, every[1], every[2])), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", `{"type":"session"`, "hello\n", string(encode(t, every[2]))} {
		if _, err := transcript.Renamed([]byte(bad), header); err == nil {
			t.Errorf("%q was taken for a session", bad)
		}
	}
}

// What can be parsed can be summarized, to the same.
func FuzzSummarize(f *testing.F) {
	f.Add(fixtures.Read(f, "sessions/every-record.jsonl"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sameAsParsed(t, data)
		// Whatever it is, it is read without a panic.
		_, _ = transcript.Summarize(data)
	})
}
