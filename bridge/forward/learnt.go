package forward

import (
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// learnt are agents that another machine has made for a call that was passed on to it, or of which it has said that it has them no more. A client may ask for
// them at once, before their claims are known here. The zero value is ready.
type learnt struct {
	mu     sync.Mutex // guards what follows
	agents map[string]learntOwner
}

type learntOwner struct {
	machine string
	from    string // that has said so, as it had it; "" for one that it has made
	until   time.Time
}

const (
	// learntFor is for how long it is believed: until then, a claim is known.
	learntFor = 5 * time.Second
	// maxLearnt bounds how many there are; then all are forgotten.
	maxLearnt = 1000
)

// of is the machine that has an agent: as the claims say, which are known here, if the one that they name has not said otherwise.
func (l *learnt) of(agent, claimed string, known bool) (machine string, either bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, told := l.agents[agent]
	switch {
	case !told:
		return claimed, known
	case time.Now().After(o.until):
		delete(l.agents, agent)
		return claimed, known
	case known && (o.from == "" || o.from != claimed):
		return claimed, known
	}
	return o.machine, true
}

// moved notes that a machine has an agent no more, and which one has.
func (l *learnt) moved(agent, from, to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(agent, learntOwner{to, from, time.Now().Add(learntFor)})
}

// note keeps one. mu is held.
func (l *learnt) note(agent string, o learntOwner) {
	if l.agents == nil || len(l.agents) > maxLearnt {
		l.agents = map[string]learntOwner{}
	}
	l.agents[agent] = o
}

// from reads a result for the agent, or the session, that was made.
func (l *learnt) from(machine string, result jsontext.Value) {
	var made struct {
		AgentID     string `json:"agent_id"`
		SessionName string `json:"session_name"`
		DestSession string `json:"dest_session"`
		NewName     string `json:"new_name"`
		Success     *bool  `json:"success"`
		Deleted     *bool  `json:"deleted"`
	}
	if err := json.Unmarshal(result, &made); err != nil || made.Success != nil || made.Deleted != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range []string{made.AgentID, made.SessionName, made.DestSession, made.NewName} {
		if name != "" {
			l.note(name, learntOwner{machine, "", time.Now().Add(learntFor)})
		}
	}
}
