package transcript_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// anyRecord is one that can follow s.
func anyRecord(r *rand.Rand, s *transcript.State, n int) transcript.Record {
	text, turn := fmt.Sprint("text ", n, strings.Repeat("\n{\"type\":\"compaction\",", r.IntN(2))), fmt.Sprint(n)
	usage := &protocol.TurnUsage{InputTokens: uint64(r.IntN(9)), OutputTokens: uint64(r.IntN(9)), Model: ptr("m")}
	switch r.IntN(16) {
	case 0, 1:
		return transcript.Message{Message: protocol.Message{Role: protocol.RoleUser, Content: text, TurnID: turn, At: at}}
	case 2, 3:
		return transcript.Message{Usage: usage, Message: protocol.Message{
			Role: protocol.RoleAssistant, Content: text, At: at, ToolCalls: []protocol.ToolCall{{ID: turn, Name: "t", Input: []byte(`{}`)}},
		}}
	case 4:
		return transcript.Message{Message: protocol.Message{Role: protocol.RoleTool, ToolCallID: fmt.Sprint(n - 1), Content: text, At: at}}
	case 5:
		return transcript.Partial{TurnID: turn, Text: text}
	case 6, 7:
		if last := len(s.Messages); last > 0 && r.IntN(3) == 0 {
			return transcript.TurnEnd{TurnID: s.Messages[last-1].TurnID, Outcome: "error", LeftOut: true, Usage: *usage, At: at}
		}
		return transcript.TurnEnd{TurnID: turn, Outcome: "completed", Usage: *usage, At: at}
	case 8:
		return transcript.Settings{Model: ptr(fmt.Sprint("m", r.IntN(3))), PromptLayers: r.IntN(2) == 0, At: at}
	case 9:
		if r.IntN(4) == 0 {
			return transcript.Revocation{Allowances: s.Allowances[:min(len(s.Allowances), r.IntN(2))], At: at}
		}
		return transcript.Allowance{Allowance: protocol.Allowance{Tool: text}, At: at}
	case 10:
		note := transcript.Note{Key: fmt.Sprint(r.IntN(3)), At: at}
		if r.IntN(3) > 0 {
			note.Data = []byte(`1`)
		}
		return note
	case 14, 15:
		return transcript.Undo{Kept: uint64(r.IntN(len(s.Messages) + 1)), At: at}
	case 11:
		if r.IntN(4) == 0 {
			return transcript.Reset{SessionID: turn, At: at}
		}
		fallthrough
	default:
		return transcript.Compaction{
			Dropped: uint64(r.IntN(len(s.Messages) + 1)), Summary: protocol.Message{Role: protocol.RoleUser, Content: text, At: at}, Usage: usage, At: at,
		}
	}
}

// A session is the same whether it is read from its last checkpoint or as a whole, wherever its
// process ended and whichever programs wrote it.
func TestCheckpointsAreTheSession(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		header := encode(t, every[0])
		with, whole := slices.Clone(header), slices.Clone(header) // the second has no checkpoints
		state := parsed(t, with)
		writer := state.Writer()
		write := func(record transcript.Record) {
			var err error
			if with, err = writer.Append(with, record); err != nil {
				t.Fatal(err)
			}
			with, whole = append(with, '\n'), append(whole, encode(t, record)...)
		}
		for n := range 1 + r.IntN(60) {
			record := anyRecord(r, state, n)
			if r.IntN(10) == 0 { // an earlier program
				with = append(with, encode(t, record)...)
				whole = append(whole, encode(t, record)...)
				state = parsed(t, with)
				writer = state.Writer()
				continue
			}
			sound := len(with)
			write(record)
			if err := state.Apply(record); err != nil {
				t.Fatal(err)
			}
			if r.IntN(10) > 0 {
				continue
			}
			// A kill within the next write, and the next start.
			torn := sound + 1 + r.IntN(len(with)-sound-1)
			_, good, err := transcript.Parse(bytes.NewReader(with[:torn]))
			if err != nil || good != int64(sound) && torn != len(with)-1 {
				t.Fatalf("seed %d: %d of %d bytes are sound, want %d: %v", seed, good, torn, sound, err)
			}
			state = parsed(t, with)
			writer = state.Writer()
			for _, fix := range state.Repair(at) {
				write(fix)
			}
		}
		want := parsed(t, whole)
		if diff := cmp.Diff(want, parsed(t, with), cmp.AllowUnexported(transcript.State{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d (-as a whole +from the checkpoint):\n%s", seed, diff)
		}
		summary, err := transcript.Summarize(bytes.NewReader(with))
		if err != nil {
			t.Fatal(err)
		}
		from := transcript.Summary{Header: want.Header, SessionID: want.SessionID, Settings: want.Settings, Messages: uint64(len(want.Messages))}
		if diff := cmp.Diff(from, summary); diff != "" {
			t.Fatalf("seed %d (-as a whole +summary):\n%s", seed, diff)
		}
		// A copy has another header, and so all of it is elsewhere.
		other := transcript.Header{Version: 1, SessionID: "other", Name: strings.Repeat("x", r.IntN(99)), CreatedAt: at}
		copied, err := renamed(with, other)
		if err != nil {
			t.Fatal(err)
		}
		want.Header = other
		if want.ResetID == "" {
			want.SessionID = other.SessionID
		}
		if diff := cmp.Diff(want, parsed(t, []byte(copied)), cmp.AllowUnexported(transcript.State{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: copy (-original +copy):\n%s", seed, diff)
		}
	}
}

func parsed(t *testing.T, data []byte) *transcript.State {
	t.Helper()
	state, _, err := transcript.Parse(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return state
}

// compacted is a session whose messages of turns each gave way to a summary, twice, and its last
// message; the last two before each compaction were kept.
func compacted(t testing.TB, messages, size int) []byte {
	t.Helper()
	state := &transcript.State{}
	writer, data := state.Writer(), []byte(nil)
	write := func(r transcript.Record) {
		line, err := writer.Append(data, r)
		if err != nil {
			t.Fatal(err)
		}
		data = append(line, '\n')
	}
	message := func(i int) transcript.Message {
		return transcript.Message{Message: protocol.Message{Role: protocol.RoleUser, Content: fmt.Sprint(i, strings.Repeat("x", size)), TurnID: "1", At: at}}
	}
	write(every[0])
	write(every[1])
	for i := range 2 * messages {
		write(message(i))
		if i == messages-1 {
			write(transcript.Compaction{Dropped: uint64(messages - 2), Summary: message(-1).Message, At: at})
		}
	}
	write(transcript.Compaction{Dropped: uint64(messages + 1), Summary: message(-2).Message, At: at})
	write(message(2 * messages))
	return data
}

// reads counts what is read of a file.
type reads struct {
	*bytes.Reader
	bytes int
}

func (r *reads) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.bytes += n
	return n, err
}

// However much is behind the last checkpoint, a start reads and takes the same.
func TestReadingBeginsAtTheCheckpoint(t *testing.T) {
	cost := func(messages int, read func(io.ReadSeeker) (uint64, error)) (bytesRead int, allocated float64) {
		data := compacted(t, messages, 100)
		r := &reads{Reader: bytes.NewReader(data)}
		if n, err := read(r); err != nil || n != 4 {
			t.Fatalf("%d messages, %v", n, err)
		}
		return r.bytes, testing.AllocsPerRun(5, func() {
			if _, err := read(bytes.NewReader(data)); err != nil {
				t.Error(err)
			}
		})
	}
	for name, read := range map[string]func(io.ReadSeeker) (uint64, error){
		"Parse": func(r io.ReadSeeker) (uint64, error) {
			s, _, err := transcript.Parse(r)
			return uint64(len(s.Messages)), err
		},
		"Summarize": func(r io.ReadSeeker) (uint64, error) {
			s, err := transcript.Summarize(r)
			return s.Messages, err
		},
	} {
		_, few := cost(10, read)
		long, many := cost(5_000, read)
		if most := 4 << 16; long > most || many > 2*few {
			t.Errorf("%s: %d bytes are read, want at most %d; %v allocations, %v for ten messages", name, long, most, many, few)
		}
	}
}

// What stands before the checkpoint is not read; what stands behind it, with what it kept, is.
func TestDamageAndCheckpoints(t *testing.T) {
	data := compacted(t, 4, 10)
	lines := bytes.SplitAfter(data, []byte("\n"))
	for i, line := range lines[:len(lines)-1] {
		damaged := bytes.Join(slices.Concat(lines[:i], [][]byte{append([]byte(`{"type":"message",`), line[1:len(line)-2]...), {'\n'}}, lines[i+1:]), nil)
		_, _, err := transcript.Parse(bytes.NewReader(damaged))
		_, summarized := transcript.Summarize(bytes.NewReader(damaged))
		if (err == nil) != (summarized == nil) {
			t.Errorf("line %d: parsed with %v, summarized with %v", i+1, err, summarized)
		}
		// The header is line 1, the last two of eight messages are lines 10 and 11.
		seen := i == 0 || i >= 9
		damage, ok := errors.AsType[*transcript.LineError](err)
		if seen != ok || ok && damage.Line != i+1 {
			t.Errorf("line %d is damaged: got %v", i+1, err)
		}
	}
}

// A checkpoint that does not suit its file is none: all of the file is read.
func TestForeignCheckpoints(t *testing.T) {
	data := string(compacted(t, 4, 10))
	want := parsed(t, []byte(data))
	last := strings.LastIndex(data, `"checkpoint":{`)
	for name, change := range map[string]func() string{
		"more messages kept than there are": func() string { return data[:last] + strings.Replace(data[last:], `"kept":2`, `"kept":200`, 1) },
		"a message in the words of another": func() string {
			i := strings.Index(data, `{"type":"message","message":{"role":"user","content":"7`)
			return data[:i] + `{ "type":"message",` + data[i+len(`{"type":"message",`):]
		},
		"none": func() string { return data[:last] + strings.Replace(data[last:], `"checkpoint":`, `"other":`, 1) },
		"of null": func() string {
			return data[:last] + `"checkpoint":null}` + data[last+strings.Index(data[last:], "\n"):]
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := change()
			if changed == data {
				t.Fatal("nothing was changed")
			}
			if diff := cmp.Diff(want, parsed(t, []byte(changed)), cmp.AllowUnexported(transcript.State{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s, err := transcript.Summarize(strings.NewReader(changed)); err != nil || s.Messages != 4 {
				t.Errorf("summary %+v, %v", s, err)
			}
		})
	}
	// One that is no checkpoint at all is damage, as in any record.
	for _, wrong := range []string{`"checkpoint":[]`, `"checkpoint":{"kept":-1}`, `"checkpoint":{}`} {
		changed := data[:last] + wrong + "}\n"
		_, _, err := transcript.Parse(strings.NewReader(changed))
		_, summarized := transcript.Summarize(strings.NewReader(changed))
		for _, err := range []error{err, summarized} {
			if damage, ok := errors.AsType[*transcript.LineError](err); !ok || damage.Line != 12 {
				t.Errorf("%s: got %v, want that line 12 is damaged", wrong, err)
			}
		}
	}
}

// What a record with a checkpoint is on the disk.
func TestCheckpointsHaveTheirLine(t *testing.T) {
	state := &transcript.State{}
	writer, data := state.Writer(), []byte(nil)
	for _, r := range every {
		line, err := writer.Append(data, r)
		if err != nil {
			t.Fatal(err)
		}
		data = append(line, '\n')
	}
	fixtures.Golden(t, "sessions/checkpoints.jsonl", data)
}

// A checkpoint has a bound: a session whose settings are larger is read as a whole.
func TestLargeCheckpoint(t *testing.T) {
	state := &transcript.State{}
	writer := state.Writer()
	for _, r := range []transcript.Record{every[0], transcript.Settings{SystemPrompt: ptr(strings.Repeat("x", 1<<20)), At: at}, every[2]} {
		if _, err := writer.Append(nil, r); err != nil {
			t.Fatal(err)
		}
	}
	line, err := writer.Append(nil, transcript.Compaction{Dropped: 1, Summary: every[2].(transcript.Message).Message, At: at})
	if err != nil || len(line) > 1<<10 {
		t.Errorf("a line of %d bytes, %v", len(line), err)
	}
}
