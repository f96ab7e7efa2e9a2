package chaos

import (
	"hash/fnv"
	"time"
)

// What says what a record tells of.
type What string

// What the history has.
const (
	Sent        What = "sent"         // a send was tried: Request, Try
	Answered    What = "answered"     // it has an outcome: Request, Try, Outcome, Sum, Said, Replayed, Bare
	Refused     What = "refused"      // it was not accepted: Request, Try, Text
	Lost        What = "lost"         // the connection broke before an answer: Request, Try, Text
	GaveUp      What = "gave up"      // no outcome came in all the time it had: Request
	CancelSaid  What = "cancel"       // a cancel was answered: Request, Done
	Subscribed  What = "subscribed"   // a follower asks for the events after Seq: Sub
	Seen        What = "event"        // it got one: Sub, Seq, Type, Sum, Size; From of a gap; Request, Outcome, Said of a turn's
	Behind      What = "behind"       // it did not get to the event Seq again, which it had seen
	Found       What = "found"        // the conversation has the prompt of Request, answered by what Sum stands for
	Read        What = "read"         // the agent's conversation was read to its end
	Unread      What = "unread"       // or could not be: Text
	Did         What = "did"          // a step of the plan was done: Deed
	Skipped     What = "skipped"      // or could not be: Deed, Text
	ServerDown  What = "server down"  // the server was killed
	ServerUp    What = "server up"    // a server listens, and has its agents
	ServerDied  What = "server died"  // the server ended by itself, or did not start again: Text
	DiskFull    What = "disk full"    //
	DiskFree    What = "disk free"    //
	AttackBegan What = "attack began" // what came before was quiet
	AttackEnded What = "attack ended"
	Looked      What = "looked" // for what may be left: Text says for what
	Left        What = "left"   // something is left that should not be: Text
)

// Record is one fact of the history. Members that a What does not name are zero.
type Record struct {
	At      time.Duration `json:"at_ns"` // since the history began
	What    What          `json:"what"`
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
	// Bare says that the answer came without its text, as old ones may.
	Bare bool   `json:"bare,omitzero"`
	Done bool   `json:"done,omitzero"`
	Sub  int    `json:"sub,omitzero"` // counts the subscriptions of an agent
	Seq  uint64 `json:"seq,omitzero"`
	From uint64 `json:"from,omitzero"`
	Size int    `json:"size,omitzero"` // bytes of the event
	Type string `json:"type,omitzero"`
	Deed Deed   `json:"deed,omitzero"`
	Text string `json:"text,omitzero"`
}

// sum stands for a text.
func sum[T ~string | ~[]byte](text T) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // it never fails
	return h.Sum64()
}
