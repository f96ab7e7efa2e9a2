package clusterchaos

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
)

const (
	// tryTimeout bounds one try at one machine, which may stand still.
	tryTimeout = 10 * time.Second
	// sendTimeout is how long a send is tried again that is not answered. It is given up then, which is told.
	sendTimeout = 3 * time.Minute
)

// What asks for a turn of two seconds by the scenario, and what it says.
const slowly = " slowly"

var slowText = strings.TrimSpace(strings.Repeat("la ", 40))

// scenario is what the model plays beside what it does offline.
func scenario() ([]byte, error) {
	type object = map[string]any
	return json.Marshal(object{
		"turns": []object{{"match": slowly, "steps": []object{{"text": slowText, "every_ms": 50}}}}, "after": "offline",
	}, json.Deterministic(true))
}

// talker asks one agent, one thing after another, at whichever machine it comes to.
type talker struct {
	r      *run
	number int // of the talker
	agent  string
	draws  *rand.Rand
	asked  []string             // its sends
	first  map[string]time.Time // when each was sent first
	once   int                  // how many sends without a request_id
}

// talk asks until ctx ends. What it has begun it finishes, unless whole ends.
func (t *talker) talk(ctx, whole context.Context) {
	for pause(ctx, time.Duration(t.draws.IntN(600))*time.Millisecond) {
		switch n := t.draws.IntN(10); {
		case n < 2:
			t.sendOnce(whole)
		case n < 7:
			id := fmt.Sprintf("%s-%d-%d", t.agent, t.number, len(t.asked))
			t.asked = append(t.asked, id)
			t.send(whole, id)
		case n < 8 && len(t.asked) > 0:
			last := t.last()
			t.send(whole, last[t.draws.IntN(len(last))])
		default:
			t.read(whole, t.r.machines[t.draws.IntN(len(t.r.machines))], true)
		}
	}
}

// repeatable is how many of a talker's last sends are repeated: a server remembers 256 of an agent, which has two talkers, who also send what is not repeated.
const repeatable = 70

// last are the sends that may be repeated.
func (t *talker) last() []string { return t.asked[max(0, len(t.asked)-repeatable):] }

// A send whose id ends in pictured brings an image of so many bytes, which goes to the object store.
const (
	pictured     = "25"
	pictureBytes = 300_000
)

// picture is the image that a send brings; none if that is no such send. Each is another one, as two of the same bytes are saved once.
func picture(id string) *[]protocol.Attachment {
	if !strings.HasSuffix(id, pictured) {
		return nil
	}
	image := append([]byte("\x89PNG\r\n\x1a\n"+id), make([]byte, pictureBytes)...)
	return &[]protocol.Attachment{{Name: new("picture"), Data: new(base64.StdEncoding.EncodeToString(image[:pictureBytes]))}}
}

// text is what a send says, and what answers it.
func (t *talker) text(id string) (text, want string) {
	if strings.HasSuffix(id, pictured) {
		return "echo " + id, fmt.Sprintf("%s\n\n[attached image: picture, image/png, %d bytes]", id, pictureBytes)
	}
	if slow := strings.HasSuffix(id, "0"); slow {
		return id + slowly, slowText
	}
	want = id + strings.Repeat(" la", t.number%2*50)
	return "echo " + want, want
}

// sendOnce sends something without a request_id, which nobody can repeat: if it is not answered, the conversation may have it, then or later, or not.
func (t *talker) sendOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	t.once++
	id := fmt.Sprintf("%s-%d-once%d", t.agent, t.number, t.once)
	text, want := t.text(id)
	c := t.r.machines[t.draws.IntN(len(t.r.machines))].call()
	if c == nil {
		return
	}
	began := t.r.began(id)
	var sent api.SendResult
	err := c.Call(ctx, "/agent/"+t.agent, "send", map[string]any{"content": text, "request_id": nil, "attachments": picture(id)}, &sent) // else the client makes one
	told := answer{}
	switch kind := client.KindOf(err); {
	case err == nil:
		told.outcome = completed
		if got := protocol.Value(sent.Content); sent.Cancelled || got != want && !sent.Truncated {
			t.r.broken("%s was answered by %q, cancelled: %v", id, got, sent.Cancelled)
		}
	case kind == api.KindChildCrashed:
		told.outcome = crashed
	default:
		t.refused(kind, err)
	}
	if told.outcome == unknown {
		t.r.abandon(id)
	} else {
		t.r.over(id)
	}
	t.r.note(porcupine.Operation{ClientId: t.number, Input: op{agent: t.agent, send: id}, Call: began, Output: told})
}

// send sends until there is an outcome.
func (t *talker) send(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	text, want := t.text(id)
	p := api.SendParams{Content: text, RequestID: &id, Attachments: picture(id)}
	began := t.r.began(id)
	defer t.r.over(id)
	if _, again := t.first[id]; !again {
		t.first[id] = time.Now()
	}
	told := answer{}
	t.until(ctx, func(ctx context.Context, c *client.Client) (done bool, err error) {
		sent, err := client.Do(ctx, c, t.agent, api.Send, p)
		switch {
		case err == nil && sent.Cancelled:
			t.r.broken("%s was cancelled, and nobody cancelled it", id)
			told.outcome = crashed
		case err == nil:
			told.outcome = completed
			if got := protocol.Value(sent.Content); got != want && !sent.Truncated {
				t.r.broken("%s was answered by %q", id, got)
			}
		case client.KindOf(err) == api.KindChildCrashed:
			told.outcome = crashed
		case client.KindOf(err) == api.KindExecutionError && t.r.wasFull(t.first[id]): // or then, if this repeats it
			told.outcome = failed
		}
		return told.outcome != unknown, err
	})
	if told.outcome == unknown {
		t.r.broken("%s was given up: it has no outcome after %s", id, sendTimeout)
	}
	t.r.note(porcupine.Operation{ClientId: t.number, Input: op{agent: t.agent, send: id}, Call: began, Output: told})
}

// read reads the whole conversation at a machine; nil if it does not answer. late says that the machine may read what it had before it was cut off, or
// stood still.
func (t *talker) read(ctx context.Context, at *machine, late bool) []string {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	beside, began := t.r.besides()
	c := at.call()
	if c == nil {
		return nil
	}
	turns, err := conversation(ctx, c, t.agent)
	if err != nil { // what is under attack need not answer
		return nil
	}
	also, _ := t.r.besides()
	t.r.note(porcupine.Operation{ClientId: t.number, Input: op{agent: t.agent, beside: append(beside, also...), late: late}, Call: began, Output: answer{turns: turns}})
	return turns
}

// conversation are the sends that a conversation has, in their order.
func conversation(ctx context.Context, c *client.Client, agent string) (turns []string, err error) {
	for offset := uint64(0); ; {
		page, err := client.Do(ctx, c, agent, api.GetMessages, api.GetMessagesParams{Offset: &offset})
		if err != nil {
			return nil, err
		}
		for _, m := range page.Messages {
			if m.Role == protocol.RoleUser {
				turns = append(turns, strings.Fields(strings.TrimPrefix(m.Content, "echo "))[0])
			}
		}
		if offset += uint64(len(page.Messages)); len(page.Messages) == 0 || offset >= page.Total {
			return turns, nil
		}
	}
}

// refused judges an error.
func (t *talker) refused(kind api.ErrorKind, err error) {
	switch kind {
	case "", api.KindNodeUnreachable, api.KindNoQuorum, api.KindServerDraining: // the connection broke, or it is under attack
		t.r.count(string(kind))
	case api.KindStorageFull, api.KindNotRecorded, api.KindStartFailed, api.KindExecutionError:
		if t.r.count(string(kind)); !t.r.mayBeFull() {
			t.r.broken("%s: %v", t.agent, err)
		}
	default:
		t.r.broken("%s: %v", t.agent, err)
	}
}

// until asks one machine after another, until one has answered or ctx ends.
func (t *talker) until(ctx context.Context, ask func(context.Context, *client.Client) (done bool, err error)) {
	for ctx.Err() == nil {
		if c := t.r.machines[t.draws.IntN(len(t.r.machines))].call(); c != nil {
			limited, cancel := context.WithTimeout(ctx, tryTimeout)
			done, err := ask(limited, c)
			cancel()
			if done {
				return
			}
			t.refused(client.KindOf(err), err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// pause waits, and reports whether ctx still holds.
func pause(ctx context.Context, d time.Duration) bool { return ratelimit.Sleep(ctx, d) == nil }
