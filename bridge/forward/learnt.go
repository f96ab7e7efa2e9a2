package forward

import (
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// learnt are agents that another machine has made for a call that was passed on to it. A client may ask for them at once, before their claims are known
// here. The zero value is ready.
type learnt struct {
	mu     sync.Mutex // guards what follows
	agents map[string]learntOwner
}

type learntOwner struct {
	machine string
	until   time.Time
}

const (
	// learntFor is for how long it is believed: until then, a claim is known.
	learntFor = 5 * time.Second
	// maxLearnt bounds how many there are; then all are forgotten.
	maxLearnt = 1000
)

// of is the machine that has made an agent.
func (l *learnt) of(agent string) (machine string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, known := l.agents[agent]
	if known && time.Now().After(o.until) {
		delete(l.agents, agent)
		return "", false
	}
	return o.machine, known
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
	if l.agents == nil || len(l.agents) > maxLearnt {
		l.agents = map[string]learntOwner{}
	}
	for _, name := range []string{made.AgentID, made.SessionName, made.DestSession, made.NewName} {
		if name != "" {
			l.agents[name] = learntOwner{machine, time.Now().Add(learntFor)}
		}
	}
}
