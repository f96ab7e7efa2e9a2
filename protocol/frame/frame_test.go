package frame_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol/frame"
)

const tooLarge = "<too large>"

// readAll lists the lines of a stream, tooLarge where one was passed over, and
// the error that ended it.
func readAll(src io.Reader) (lines []string, end error) {
	r := frame.NewReader(src)
	for {
		line, err := r.Next()
		if _, ok := errors.AsType[*frame.TooLargeError](err); ok {
			lines = append(lines, tooLarge)
			continue
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(line))
	}
}

// reference is what readAll must give for a whole stream: slow and plain.
func reference(data []byte) (lines []string) {
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		line = bytes.TrimSuffix(line, []byte{'\r'})
		switch {
		case len(line) > frame.MaxPayload:
			lines = append(lines, tooLarge)
		case len(bytes.Trim(line, " \t\r")) > 0:
			lines = append(lines, string(line))
		}
	}
	return lines
}

// shorten keeps differences of long lines readable.
func shorten(lines []string) (out []string) {
	for _, line := range lines {
		if len(line) > 40 {
			line = fmt.Sprintf("%s… (%d bytes)", line[:40], len(line))
		}
		out = append(out, line)
	}
	return out
}

func TestReader(t *testing.T) {
	full := strings.Repeat("a", frame.MaxPayload)
	huge := strings.Repeat("b", 3*frame.MaxPayload)
	tests := []struct {
		name  string
		input string
		want  []string
	}{
		{"nothing", "", nil},
		{"one line", "{}\n", []string{"{}"}},
		{"without an end", "{}", []string{"{}"}},
		{"two lines", "1\n2\n", []string{"1", "2"}},
		{"blank lines", "\n\r\n \t\n1\n\n\n2\n", []string{"1", "2"}},
		{"one carriage return", "1\r\n2\r\r\n3\r", []string{"1", "2\r", "3"}},
		{"carriage return inside", "1\r2\n", []string{"1\r2"}},
		{"space is kept", " 1 \n", []string{" 1 "}},
		{"other line ends are none", "1\u20282\v3\f4\u0085\n", []string{"1\u20282\v3\f4\u0085"}},
		{"bytes are not judged", "\xff\x00\n", []string{"\xff\x00"}},
		{"at the limit", full + "\nx\n", []string{full, "x"}},
		{"at the limit with a carriage return", full + "\r\nx\n", []string{full, "x"}},
		{"at the limit without an end", full, []string{full}},
		{"at the limit, carriage return, no end", full + "\r", []string{full}},
		{"one above", full + "a\nx\n", []string{tooLarge, "x"}},
		{"one above with a carriage return", full + "a\r\nx\n", []string{tooLarge, "x"}},
		{"one above without an end", full + "a", []string{tooLarge}},
		{"two carriage returns at the limit", full + "\r\r\nx\n", []string{tooLarge, "x"}},
		{"far above", huge + "\nx\n", []string{tooLarge, "x"}},
		{"far above, twice", huge + "\n" + huge + "\nx", []string{tooLarge, tooLarge, "x"}},
		{"far above, then blank", huge + "\n\n\r\nx", []string{tooLarge, "x"}},
		{"the tail is no line", huge + `{"type":"shutdown"}`, []string{tooLarge}},
		{"above in blanks", strings.Repeat(" ", frame.MaxPayload+1) + "\nx\n", []string{tooLarge, "x"}},
		{"short after the limit", "x\n" + full + "\n" + full + "\ny", []string{"x", full, full, "y"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sources := map[string]io.Reader{
				"whole":         strings.NewReader(tt.input),
				"in odd pieces": &pieces{data: []byte(tt.input), sizes: []byte{255, 0, 251, 3}, least: 1, scale: 97},
				"end with data": iotest.DataErrReader(strings.NewReader(tt.input)),
			}
			if len(tt.input) < 100 {
				sources["byte by byte"] = iotest.OneByteReader(strings.NewReader(tt.input))
			}
			for how, source := range sources {
				got, err := readAll(source)
				if err != io.EOF {
					t.Errorf("%s: ended by %v", how, err)
				}
				if diff := cmp.Diff(shorten(tt.want), shorten(got)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestReaderPassesOnTheStreamsError(t *testing.T) {
	broken := errors.New("broken")
	lines, err := readAll(io.MultiReader(strings.NewReader("1\n{\"half\":"), iotest.ErrReader(broken)))
	if diff := cmp.Diff([]string{"1"}, lines); diff != "" || err != broken {
		t.Errorf("got %v, %v, want line 1 and %v", lines, err, broken)
	}
}

func TestReaderGivesUpOnAStreamThatGivesNothing(t *testing.T) {
	_, err := readAll(io.MultiReader(strings.NewReader("1\n"), silent{}))
	if !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v, want %v", err, io.ErrNoProgress)
	}
}

func TestReaderRepeatsItsEnd(t *testing.T) {
	r := frame.NewReader(strings.NewReader("1"))
	for i := range 3 {
		if _, err := r.Next(); (err == io.EOF) != (i > 0) {
			t.Errorf("call %d: got %v", i, err)
		}
	}
}

// TestReaderMemory: a peer that never ends its line must not fill our memory.
func TestReaderMemory(t *testing.T) {
	const size, bound = 64 << 20, 2 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	lines, err := readAll(io.MultiReader(io.LimitReader(filler{}, size), strings.NewReader("\n{}\n")))
	runtime.ReadMemStats(&after)
	if err != io.EOF || len(lines) != 2 || lines[0] != tooLarge || lines[1] != "{}" {
		t.Errorf("got %v, %v", shorten(lines), err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > bound {
		t.Errorf("allocated %d bytes for a line of %d, want at most %d", grown, size, bound)
	}
}

func TestWriter(t *testing.T) {
	full := strings.Repeat("a", frame.MaxWritten-1)
	tests := []struct {
		name    string
		payload string
		want    error
	}{
		{"short", "{}", nil},
		{"empty", "", nil},
		{"at the limit", full, nil},
		{"one above", full + "a", &frame.TooLargeError{Limit: frame.MaxWritten - 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var dst countingWriter
			err := frame.NewWriter(&dst).Write([]byte(tt.payload))
			if diff := cmp.Diff(tt.want, err); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			want, calls := tt.payload+"\n", 1
			if err != nil {
				want, calls = "", 0
			}
			if dst.String() != want || dst.calls != calls {
				t.Errorf("got %d bytes in %d writes, want %d in %d", dst.Len(), dst.calls, len(want), calls)
			}
		})
	}
}

func TestWriterRefusesANewline(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a payload of two lines was written")
		}
	}()
	_ = frame.NewWriter(io.Discard).Write([]byte("1\n2"))
}

func TestWriterPassesOnTheStreamsError(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	if err := frame.NewWriter(w).Write([]byte("{}")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want %v", err, io.ErrClosedPipe)
	}
}

func TestWriterNeverMixesLines(t *testing.T) {
	var dst countingWriter
	w := frame.NewWriter(&dst)
	var writers sync.WaitGroup
	want := map[string]int{}
	for i := range 8 {
		line := strings.Repeat(string(rune('a'+i)), 100+1000*i)
		want[line] = 50
		writers.Go(func() {
			for range 50 {
				if err := w.Write([]byte(line)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	lines, _ := readAll(&dst.Buffer)
	got := map[string]int{}
	for _, line := range lines {
		got[line]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzReader: however a stream is cut into reads, the lines are those of the
// plain reference. Each byte of input below 128 stands for itself; a byte
// above that stands for a run of up to a limit and a half of the letter x, so
// that the fuzzer reaches long lines with short inputs.
func FuzzReader(f *testing.F) {
	f.Add([]byte("{}\r\n\n1\n"), []byte{1, 2})
	f.Add([]byte("\xd5\n{}\n"), []byte{255})
	f.Add([]byte("\xff\r\n\xff\r\r\n2"), []byte{7, 0, 200})
	f.Fuzz(func(t *testing.T, script, sizes []byte) {
		data := expand(script)
		got, err := readAll(&pieces{data: data, sizes: sizes, least: 1 + len(data)/1024, scale: 1 + len(data)/4096})
		if err != io.EOF {
			t.Fatalf("ended by %v", err)
		}
		if diff := cmp.Diff(shorten(reference(data)), shorten(got)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// FuzzWriter: what is written is read back.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("{}"))
	f.Add([]byte("a\r"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		payload = bytes.ReplaceAll(payload, []byte{'\n'}, nil)
		var dst bytes.Buffer
		if err := frame.NewWriter(&dst).Write(payload); err != nil {
			t.Fatal(err)
		}
		got, _ := readAll(&dst)
		if diff := cmp.Diff(reference(payload), got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// expand turns a fuzz script into a stream of at most 9 MiB.
func expand(script []byte) (data []byte) {
	const step = frame.MaxPayload * 3 / 2 / 127
	for _, c := range script[:min(len(script), 6)] {
		if c < 128 {
			data = append(data, c)
			continue
		}
		run := int(c-128) * step
		if c%8 == 5 { // around the limit
			run = frame.MaxPayload - 2 + int(c>>3)%5
		}
		data = append(data, bytes.Repeat([]byte{'x'}, run)...)
	}
	return data
}

// pieces is a stream that comes in reads of the given sizes, again and again.
type pieces struct {
	data  []byte
	sizes []byte // of the reads: least + size*scale
	least int
	scale int
	next  int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	size := len(p.data)
	if len(p.sizes) > 0 {
		size = p.least + int(p.sizes[p.next%len(p.sizes)])*p.scale
		p.next++
	}
	n := copy(b[:min(size, len(b))], p.data)
	p.data = p.data[n:]
	return n, nil
}

// filler is an endless line.
type filler struct{}

func (filler) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// silent is a stream that breaks the rules of io.Reader.
type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

// countingWriter counts calls. It needs no lock: the Writer under test has one.
type countingWriter struct {
	bytes.Buffer
	calls int
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(b)
}

// A reader with a limit of its own takes lines up to that, also beyond MaxPayload.
func TestLimitedReader(t *testing.T) {
	const limit = 2 << 20
	whole, long := strings.Repeat("a", limit), strings.Repeat("b", limit+1)
	r := frame.NewLimitedReader(iotest.OneByteReader(strings.NewReader("x\n")), limit)
	if line, err := r.Next(); string(line) != "x" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	r = frame.NewLimitedReader(strings.NewReader(whole+"\r\n"+long+"\n"+"y\n"), limit)
	if line, err := r.Next(); string(line) != whole || err != nil {
		t.Errorf("a line of the limit: %d bytes, %v", len(line), err)
	}
	_, err := r.Next()
	if tooLarge, ok := errors.AsType[*frame.TooLargeError](err); !ok || tooLarge.Limit != limit {
		t.Errorf("a longer line: %v", err)
	}
	if line, err := r.Next(); string(line) != "y" || err != nil {
		t.Errorf("the next line: %q, %v", line, err)
	}
}
