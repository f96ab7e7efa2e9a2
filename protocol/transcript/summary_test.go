package transcript_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
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

// A list of many short sessions takes no buffers for long ones, whose collection others would
// have to wait for.
func TestSummaryOfAShortSessionIsSmall(t *testing.T) {
	data := encode(t, every[:5]...)
	var before, after runtime.MemStats
	const times = 100
	runtime.ReadMemStats(&before)
	for range times {
		if _, err := transcript.Summarize(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 32<<10 {
		t.Errorf("a summary of %d bytes allocates %d", len(data), each)
	} else {
		t.Logf("a summary of %d bytes allocates %d", len(data), each)
	}
}

func sameAsParsed(t *testing.T, data []byte) {
	t.Helper()
	state, _, err := transcript.Parse(bytes.NewReader(data))
	if err != nil {
		return
	}
	got, err := transcript.Summarize(bytes.NewReader(data))
	want := transcript.Summary{Header: state.Header, SessionID: state.SessionID, Settings: state.Settings, Messages: uint64(len(state.Messages))}
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

// pieces is what they are one after the other; a number is as many bytes of text.
type pieces []any

func (p pieces) ReadAt(into []byte, off int64) (n int, err error) {
	for _, piece := range p {
		var size int64
		switch piece := piece.(type) {
		case int:
			size = int64(piece)
			for n < len(into) && off < size {
				part := into[n:][:min(size-off, int64(len(into)-n))]
				for i := range part {
					part[i] = 'x'
				}
				n, off = n+len(part), off+int64(len(part))
			}
		case string:
			size = int64(len(piece))
			if off < size {
				k := copy(into[n:], piece[off:])
				n, off = n+k, off+int64(k)
			}
		case error:
			if n == 0 {
				return 0, piece
			}
			return n, nil
		}
		if n == len(into) {
			return n, nil
		}
		off -= size
	}
	return n, io.EOF
}

func (p pieces) open() *io.SectionReader {
	size := int64(0)
	for _, piece := range p {
		switch piece := piece.(type) {
		case int:
			size += int64(piece)
		case string:
			size += int64(len(piece))
		case error:
			size++
		}
	}
	return io.NewSectionReader(p, 0, size)
}

// However long a session and its lines are, a summary takes the memory of a line.
func TestSummarizeHuge(t *testing.T) {
	header, settings := string(encode(t, every[0])), string(encode(t, every[1]))
	message := string(encode(t, every[2]))
	opened, closed := `{"type":"message","message":"`, "\"}\n"
	const long = 100 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := transcript.Summarize(pieces{header, opened, long, closed, opened, long, closed, message, settings, opened, long, closed}.open())
	runtime.ReadMemStats(&after)
	if err != nil || got.Messages != 4 || got.Settings.At.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("took %d MiB", grown>>20)
	}
	// A line without an end is a torn one.
	got, err = transcript.Summarize(pieces{header, message, long}.open())
	if err != nil || got.Messages != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	// What is no message and has no end is none of ours.
	_, err = transcript.Summarize(pieces{header, `{"type":"settings","cwd":"`, long, "\"}\n"}.open())
	if line, ok := errors.AsType[*transcript.LineError](err); !ok || line.Line != 2 {
		t.Errorf("got %v, want that line 2 is damaged", err)
	}
	// An error of reading is none of the session.
	broken := errors.New("broken")
	if _, err := transcript.Summarize(pieces{header, broken}.open()); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

// What can be parsed can be summarized, to the same.
func FuzzSummarize(f *testing.F) {
	f.Add(fixtures.Read(f, "sessions/every-record.jsonl"))
	f.Add(fixtures.Read(f, "sessions/checkpoints.jsonl"))
	f.Add(compacted(f, 4, 10))
	f.Fuzz(func(t *testing.T, data []byte) {
		sameAsParsed(t, data)
		// Whatever it is, it is read without a panic.
		_, _ = transcript.Summarize(bytes.NewReader(data))
	})
}
