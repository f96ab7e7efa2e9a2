package bridge_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// told is one event of GET /events.
type told struct {
	id, name string // "" for an event without one
	agent    string
	seq      uint64
	event    string // as the child wrote it
	gap      bool   // of open: somebody may have been missed
}

// listen opens GET /events and returns what it tells, one event a call. from is
// an id to go on from, "" for none.
func (r *rig) listen(query, from string) (next func() told, leave func()) {
	r.t.Helper()
	conn := r.dial()
	request := r.head("GET /events" + query + " HTTP/1.1")
	if from != "" {
		request += "Last-Event-ID: " + from + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		r.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		r.t.Fatalf("%s: %s", response.Status, body)
	}
	lines := bufio.NewReader(response.Body)
	return func() (e told) {
		r.t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				r.t.Fatalf("the stream broke off: %v", err)
			}
			line = strings.TrimSuffix(line, "\n")
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.agent, e.seq = gjson.Get(value, "agent_id").Str, gjson.Get(value, "seq").Uint()
				e.event, e.gap = gjson.Get(value, "event").Raw, gjson.Get(value, "gap").Bool()
			case "":
				if line == "" && e.name != "" {
					return e
				}
			}
		}
	}, func() { conn.Close() }
}

// until collects what comes up to n events of a type.
func until(next func() told, name string, n int) (all []told) {
	for {
		e := next()
		if all = append(all, e); e.name == name {
			if n--; n == 0 {
				return all
			}
		}
	}
}

// say sends a message and waits for its end.
func (r *rig) say(agent, text string) {
	r.t.Helper()
	if _, err := client.Do(r.ctx(), r.client, agent, api.Send, api.SendParams{Content: text}); err != nil {
		r.t.Fatal(err)
	}
}
