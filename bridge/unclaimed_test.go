package bridge_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// A temporary agent whose name the others have given up ends, whether one of them has an agent of that name by then or not: each name is one machine's.
// A machine that does not know what the others did ends nothing.
func TestUnclaimed(t *testing.T) {
	c, all := clusterOf(t, plays(supervisortest.Echo), "a", "b")
	a, b := all[0], all[1]
	for _, id := range []string{".free", ".theirs", ".mine", "named"} {
		b.create(id)
	}
	b.save("home/run/temp/.free.jsonl", []byte(savedText), 0)
	ended := b.logs.seen("the name of a temporary agent for free: the agent ends")
	events := make(chan string, 1)
	go func() { // which is waited for
		_, body := b.do(http.MethodGet, "/agent/.free/events?after=0", nil)
		events <- body
	}()
	c.mu.Lock()
	c.blind = true
	delete(c.claims, ".free")
	c.claims[".theirs"] = "a"
	c.mu.Unlock()
	late := time.NewTimer(time.Second) // twice as long as nobody looks
	defer late.Stop()
	<-late.C
	for _, id := range []string{".free", ".theirs"} {
		if _, err := b.sup.Agent(id); err != nil {
			t.Errorf("%s of a machine that knows no claims has ended: %v", id, err)
		}
	}
	c.mu.Lock()
	c.blind = false
	c.mu.Unlock()
	for _, id := range []string{".free", ".theirs"} {
		for began := time.Now(); ; {
			if _, err := b.sup.Agent(id); errors.Is(err, supervisor.ErrNotFound) {
				break
			}
			if time.Since(began) > patience {
				t.Fatalf("%s goes on", id)
			}
		}
	}
	<-ended
	if told := <-events; !strings.Contains(told, "event: end") {
		t.Errorf("the events of an agent that has ended: %s", told)
	}
	for began := time.Now(); ; {
		if _, err := os.Stat(b.home + "/run/temp/.free.jsonl"); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Since(began) > patience {
			t.Fatal("its session stays")
		}
	}
	a.create(".free") // as nobody has the name
	for _, id := range []string{".mine", "named"} {
		if _, err := b.sup.Agent(id); err != nil || c.owner(id) != "b" {
			t.Errorf("%s, which b has: %v, %s", id, err, c.owner(id))
		}
	}
}
