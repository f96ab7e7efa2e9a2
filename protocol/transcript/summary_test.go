package transcript_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

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
	got, err := transcript.Summarize(bytes.NewReader(data))
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
		_, err := transcript.Summarize(strings.NewReader(text))
		if _, ok := errors.AsType[*transcript.LineError](err); !ok {
			t.Errorf("%s: got %v, want the line", name, err)
		}
	}
}

func TestRenamed(t *testing.T) {
	data := encode(t, every[:3]...)
	header := every[0].(transcript.Header)
	header.Name, header.SessionID = "other", "22222222-3333-4444-8555-666666666666"
	// A tail that is longer than what is looked at in one.
	for _, torn := range []string{"", `{"type":"mess`, strings.Repeat("x", 200<<10)} {
		got, err := renamed(append(slices.Clone(data), torn...), header)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(encode(t, header, every[1], every[2])), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for _, bad := range []string{"", `{"type":"session"`, "hello\n", string(encode(t, every[2]))} {
		if _, err := renamed([]byte(bad), header); err == nil {
			t.Errorf("%q was taken for a session", bad)
		}
	}
}

func renamed(data []byte, header transcript.Header) (string, error) {
	var b strings.Builder
	err := transcript.Renamed(&b, bytes.NewReader(data), int64(len(data)), header)
	return b.String(), err
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// However long a session and its lines are, a summary takes the memory of a line.
func TestSummarizeHuge(t *testing.T) {
	header, settings := encode(t, every[0]), encode(t, every[1])
	message := encode(t, every[2])
	long := func() io.Reader {
		return io.MultiReader(strings.NewReader(`{"type":"message","message":"`), io.LimitReader(zeros{}, 100<<20), strings.NewReader("\"}\n"))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := transcript.Summarize(io.MultiReader(bytes.NewReader(header), long(), long(), bytes.NewReader(message), bytes.NewReader(settings), long()))
	runtime.ReadMemStats(&after)
	if err != nil || got.Messages != 4 || got.Settings.At.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("took %d MiB", grown>>20)
	}
	// A line without an end is a torn one.
	got, err = transcript.Summarize(io.MultiReader(bytes.NewReader(header), bytes.NewReader(message), io.LimitReader(zeros{}, 100<<20)))
	if err != nil || got.Messages != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	// What is no message and has no end is none of ours.
	_, err = transcript.Summarize(io.MultiReader(bytes.NewReader(header), strings.NewReader(`{"type":"settings","cwd":"`), io.LimitReader(zeros{}, 100<<20), strings.NewReader("\"}\n")))
	if line, ok := errors.AsType[*transcript.LineError](err); !ok || line.Line != 2 {
		t.Errorf("got %v, want that line 2 is damaged", err)
	}
	// An error of reading is none of the session.
	broken := errors.New("broken")
	if _, err := transcript.Summarize(io.MultiReader(bytes.NewReader(header), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

// What can be parsed can be summarized, to the same.
func FuzzSummarize(f *testing.F) {
	f.Add(fixtures.Read(f, "sessions/every-record.jsonl"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sameAsParsed(t, data)
		// Whatever it is, it is read without a panic.
		_, _ = transcript.Summarize(bytes.NewReader(data))
	})
}
