package broker

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

// refusal is an answer of the broker's own, in the form that both vendors use:
// {"error":{"type","message"}}.
type refusal struct {
	status int
	kind   string
	text   string
	retry  time.Duration // 0 if it does not pass by itself
}

// Error is for the transport, whose reading of a request's body it ends.
func (r *refusal) Error() string { return r.text }

func refuse(status int, kind, format string, args ...any) *refusal {
	return &refusal{status: status, kind: kind, text: fmt.Sprintf(format, args...)}
}

func (r *refusal) after(wait time.Duration) *refusal {
	r.retry = wait
	r.text += "; try again in " + strconv.Itoa(seconds(wait)) + " s"
	return r
}

// seconds rounds up, as Retry-After knows no parts of them.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// write answers with the refusal. The server ends the connection if there is
// more of the request than it cares to read.
func (r *refusal) write(w http.ResponseWriter) {
	body := r.body()
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set(protocol.BrokerRefusal, "1")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds(r.retry)))
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(body) // who has left needs no answer
}

// body is the refusal as JSON, in one line.
func (r *refusal) body() []byte {
	body, _ := jsontext.AppendQuote([]byte(`{"error":{"type":"`+r.kind+`","message":`), r.text) // what is not UTF-8 is replaced
	return append(body, "}}"...)
}
