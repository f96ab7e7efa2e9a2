package bridge_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// readSoFar is how many bytes this process has read.
func readSoFar(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(regexp.MustCompile(`rchar: (\d+)`).FindStringSubmatch(string(data))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A list says which session was the last one without reading it: it is written to all the time,
// and may be long.
func TestListDoesNotReadTheLastSession(t *testing.T) {
	r := rigged(t, nil)
	long := savedText + strings.Repeat(`{"type":"turn_end","turn_id":"x","outcome":"completed","at":"2026-01-02T03:04:05Z"}`+"\n", 50_000)
	r.save("home/sessions/long.jsonl", []byte(long), 1)
	if _, err := client.Do(r.ctx(), r.client, "long", api.Send, api.SendParams{Content: "x"}); err != nil {
		t.Fatal(err)
	}
	r.save("home/sessions/long.jsonl", []byte(long+savedText), 1) // something was written to it
	before := readSoFar(t)
	list, err := client.Do(r.ctx(), r.client, "", api.ListSessions, api.ListSessionsParams{Limit: new(uint64(0))})
	if read := readSoFar(t) - before; err != nil || protocol.Value(list.LastSession) != "long" || read > len(long)/2 {
		t.Errorf("a list of none, of %q, read %d bytes, %v", protocol.Value(list.LastSession), read, err)
	}
}
