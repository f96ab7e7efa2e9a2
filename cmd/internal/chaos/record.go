package chaos

import (
	"hash/fnv"
	"time"
)

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

// sum stands for a text.
func sum[T ~string | ~[]byte](text T) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // it never fails
	return h.Sum64()
}
