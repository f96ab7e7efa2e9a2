package eventstream_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol/eventstream"
)

// maxEvent is the longest event here.
const maxEvent = 1 << 20

// sent is an event, as text.
type sent struct{ name, data string }

// read reads the events that have data.
func read(r io.Reader) (got []sent, err error) {
	for e, err := range eventstream.Read(r, maxEvent) {
		if err != nil {
			return got, err
		}
		if len(e.Data) > 0 {
			got = append(got, sent{e.Name, string(e.Data)})
		}
	}
	return got, nil
}

// TestPlace reads what a broken stream is asked for anew by, and the events that have nothing else.
func TestPlace(t *testing.T) {
	var got []string
	for e, err := range eventstream.Read(strings.NewReader("id: 1\ndata: a\n\n: ping\n\nid\nretry: 2500\n\nid: a\x00b\nretry: 1s\ndata\n\n"), maxEvent) {
		if err != nil {
			t.Fatal(err)
		}
		id := "-"
		if e.ID != nil {
			id = *e.ID
		}
		got = append(got, fmt.Sprintf("%q %s %v", e.Data, id, e.Retry))
	}
	if diff := cmp.Diff([]string{`"a" 1 0s`, `"" - 0s`, `""  2.5s`, `"" - 0s`}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The rules of the specification, each with all three ends of line, read whole
// and byte by byte.
func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name, stream string
		want         []sent
	}{
		{"nothing", "", nil},
		{"one", "data: a\n\n", []sent{{"", "a"}}},
		{"named", "event: x\ndata: a\n\ndata: b\n\n", []sent{{"x", "a"}, {"", "b"}}},
		{"several lines of data", "data: a\ndata\ndata:\ndata: b\n\n", []sent{{"", "a\n\n\nb"}}},
		{"one space is no part of the value", "data:a\n\ndata:  a\n\n", []sent{{"", "a"}, {"", " a"}}},
		{"a byte order mark", "\uFEFFdata: \uFEFFa\n\n", []sent{{"", "\uFEFFa"}}},
		{"comments", ": ping\n\n:\ndata: a\n: b\n\n", []sent{{"", "a"}}},
		{"other fields", "id: 1\nretry: 5\nmood: fine\nDATA: b\ndata : c\ndata: a\n\n", []sent{{"", "a"}}},
		{"no data", "event: x\n\nevent: y\ndata:\n\ndata: a\n\n", []sent{{"", "a"}}},
		{"blank lines", "\n\n\ndata: a\n\n\n\ndata: b\n\n", []sent{{"", "a"}, {"", "b"}}},
		{"a colon in the value", "data: {\"a\":1}\n\n", []sent{{"", `{"a":1}`}}},
		{"an end within an event", "data: a\n\ndata: b\n", []sent{{"", "a"}}},
		{"an end within a line", "data: a\n\ndata: b", []sent{{"", "a"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, end := range []string{"\n", "\r", "\r\n"} {
				stream := strings.ReplaceAll(tt.stream, "\n", end)
				whole, err := read(strings.NewReader(stream))
				if diff := cmp.Diff(tt.want, whole, cmp.AllowUnexported(sent{})); err != nil || diff != "" {
					t.Errorf("end %q: error %v, -want +got\n%s", end, err, diff)
				}
				bytewise, err := read(iotest.OneByteReader(strings.NewReader(stream)))
				if diff := cmp.Diff(tt.want, bytewise, cmp.AllowUnexported(sent{})); err != nil || diff != "" {
					t.Errorf("end %q, byte by byte: error %v, -want +got\n%s", end, err, diff)
				}
			}
		})
	}
}

// An event is passed on as soon as its blank line is there: the reader does not
// wait to see whether a LF follows a CR. A connection that fails after it is told.
func TestEventsDoNotWait(t *testing.T) {
	failed := errors.New("the connection failed")
	for _, stream := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		got, err := read(io.MultiReader(strings.NewReader(stream), iotest.ErrReader(failed)))
		if len(got) != 1 || !errors.Is(err, failed) {
			t.Errorf("%q gave %v, error %v", stream, got, err)
		}
	}
}

// An event of many lines is bounded as one long line is.
func TestALongEvent(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<15) + "\n"
	got, err := read(strings.NewReader(strings.Repeat(line, 31) + "\n" + strings.Repeat(line, 33)))
	if !errors.Is(err, eventstream.ErrTooLong) || len(got) != 1 {
		t.Errorf("%d events, error %v", len(got), err)
	}
	// Lines that are no data count as well, comments do not.
	for field, want := range map[string]bool{"x: ": true, "event: ": true, ": ": false} {
		line := field + strings.Repeat("x", 1<<15) + "\n"
		_, err := read(strings.NewReader(strings.Repeat(line, 33)))
		if errors.Is(err, eventstream.ErrTooLong) != want {
			t.Errorf("%q: error %v", field, err)
		}
	}
}

// FuzzEvents: whatever is sent, its events do not depend on how it is cut up nor
// on which end of line it has, and there are no more of them than blank lines.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("\uFEFFevent: a\ndata: b\ndata\n\n: c\r\rdata: d\r\n\r\nid: 1\n\n"))
	f.Add([]byte("data:\n\ndata: \r\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		same := func(other io.Reader, how string) []sent {
			want, err := read(strings.NewReader(string(stream)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(other)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(sent{})); err != nil || diff != "" {
				t.Errorf("%s: error %v, -want +got\n%s", how, err, diff)
			}
			return want
		}
		lines := strings.ReplaceAll(strings.ReplaceAll(string(stream), "\r\n", "\n"), "\r", "\n")
		same(iotest.OneByteReader(strings.NewReader(string(stream))), "byte by byte")
		same(strings.NewReader(strings.ReplaceAll(lines, "\n", "\r")), "with CR")
		got := same(strings.NewReader(strings.ReplaceAll(lines, "\n", "\r\n")), "with CRLF")
		if len(got) > strings.Count(lines, "\n\n") {
			t.Errorf("%d events in %q", len(got), stream)
		}
	})
}
