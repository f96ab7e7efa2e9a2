package chaos

import (
	"bufio"
	"errors"
	"hash/fnv"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// History is everything that happened, in the order in which it was learned. It
// is safe for concurrent use.
type History struct {
	began time.Time
	check *Checker

	mu    sync.Mutex // guards the rest
	file  *os.File
	lines *bufio.Writer
	err   error // the first of writing
}

// NewHistory writes to a new file, a JSON object a line, and shows the checker
// every record. The pieces of answers among the events are for the checker
// alone.
func NewHistory(path string, check *Checker) (*History, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &History{began: time.Now(), check: check, file: file, lines: bufio.NewWriter(file)}, nil
}

// nanoseconds are how a duration stands in the file.
var nanoseconds = json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, d time.Duration) error {
	return e.WriteToken(jsontext.Int(int64(d)))
}))

// Add notes a record, and when.
func (h *History) Add(r Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.At = time.Since(h.began)
	h.check.Observe(r)
	if r.Kind == Seen && r.Type == "message_update" {
		return
	}
	line, err := json.Marshal(r, nanoseconds)
	if err == nil {
		_, err = h.lines.Write(append(line, '\n'))
	}
	if h.err == nil {
		h.err = err
	}
}

// missesTurnEnds reports whether the events of an agent have yet to tell how a turn
// ended that was answered.
func (h *History) missesTurnEnds(agent string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.check.missesTurnEnds(agent)
}

// servedUnderAttack reports whether a send of a control agent was answered under
// attack, while the server and its disk were not attacked themselves.
func (h *History) servedUnderAttack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.check.latency(true).Tries > 0
}

// Close writes what is not yet written. The error is the first of any writing.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.err, h.lines.Flush(), h.file.Close())
}

// RecordKind says what a record tells of.
type RecordKind string

// What the history has.
const (
	Sent        RecordKind = "sent"         // a send was tried: Request, Try
	Answered    RecordKind = "answered"     // it has an outcome: Request, Try, Outcome, Sum, Said, Replayed, Bare
	Refused     RecordKind = "refused"      // it was not accepted: Request, Try, Text
	Lost        RecordKind = "lost"         // the connection broke before an answer: Request, Try, Text
	GaveUp      RecordKind = "gave up"      // no outcome came in all the time it had: Request
	CancelSaid  RecordKind = "cancel"       // a cancel was answered: Request, Done
	Subscribed  RecordKind = "subscribed"   // a follower asks for the events after Seq: Sub
	Seen        RecordKind = "event"        // it got one: Sub, Seq, Type, Sum, Size; From of a gap; Request, Outcome, Said of a turn's
	Behind      RecordKind = "behind"       // it did not get to the event Seq again, which it had seen
	Found       RecordKind = "found"        // the conversation has the prompt of Request, answered by what Sum stands for
	Read        RecordKind = "read"         // the agent's conversation was read to its end
	Unread      RecordKind = "unread"       // or could not be: Text
	Did         RecordKind = "did"          // a step of the plan was done: Action
	Skipped     RecordKind = "skipped"      // or could not be: Action, Text
	ServerDown  RecordKind = "server down"  // the server was killed
	ServerUp    RecordKind = "server up"    // a server listens, and has its agents
	ServerDied  RecordKind = "server died"  // the server ended by itself, or did not start again: Text
	DiskFull    RecordKind = "disk full"    //
	DiskFree    RecordKind = "disk free"    //
	AttackBegan RecordKind = "attack began" // what came before was quiet
	AttackEnded RecordKind = "attack ended"
	Looked      RecordKind = "looked" // for what may be left: Text says for what
	Left        RecordKind = "left"   // something is left that should not be: Text
)

// Record is one fact of the history. Members that a What does not name are zero.
type Record struct {
	At      time.Duration `json:"at_ns"` // since the history began
	Kind    RecordKind    `json:"what"`
	Agent   string        `json:"agent,omitzero"`
	Request string        `json:"request,omitzero"` // a request_id; no two sends of a run share one
	Try     int           `json:"try,omitzero"`     // counts from 1
	Outcome string        `json:"outcome,omitzero"` // as in SPEC §5.3
	// Sum stands for a text or an event; equal ones have equal sums.
	Sum uint64 `json:"sum,omitzero"`
	// Said stands for what the turn had said when it ended: for its client, and as
	// its events tell it. Whole says that it is known.
	Said     uint64 `json:"said,omitzero"`
	Whole    bool   `json:"whole,omitzero"`
	Replayed bool   `json:"replayed,omitzero"`
	// Truncated says that the answer came without its text, as old ones may.
	Truncated bool   `json:"bare,omitzero"`
	Done      bool   `json:"done,omitzero"`
	Sub       int    `json:"sub,omitzero"` // counts the subscriptions of an agent
	Seq       uint64 `json:"seq,omitzero"`
	From      uint64 `json:"from,omitzero"`
	Size      int    `json:"size,omitzero"` // bytes of the event
	Type      string `json:"type,omitzero"`
	Action    Action `json:"deed,omitzero"`
	Text      string `json:"text,omitzero"`
}

func sum[T ~string | ~[]byte](text T) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // it never fails
	return h.Sum64()
}
