// Package scenario is the format of the files that the offline model plays (SPEC §4.2):
//
//	file, err := scenario.Parse(text)
//
// Its functions keep no state and are safe for concurrent use.
package scenario

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// Bounds of a scenario file (SPEC §4.2).
const (
	MaxBytes      = 16 << 20   // of the file
	MaxFlood      = 10_000_000 // deltas of one flood
	maxMillis     = 3_600_000  // of one pause
	maxFloodBytes = 4 << 20    // bytes of one delta
	maxExit       = 255        // the highest exit status there is
)

// File is a scenario file.
type File struct {
	// Comment is for the reader.
	Comment string `json:"comment" wire:"default"`
	Turns   []Turn `json:"turns"`
	// After says what comes when all turns were played: "fail", the default,
	// "repeat" or "offline".
	After string `json:"after" wire:"default"`
}

// Turn is what is played for one user's message.
type Turn struct {
	// Match picks this turn for every message that contains it. Turns without
	// it are played in their order, one for each message that no Match picks.
	Match *string `json:"match"`
	Steps []Step  `json:"steps"`
}

// Step is one thing to do. Exactly one member is given, besides EveryMS.
type Step struct {
	Text     *string             `json:"text"`
	Thinking *string             `json:"thinking"`
	Tool     *Tool               `json:"tool"`
	DelayMS  *uint64             `json:"delay_ms"`
	Flood    *Flood              `json:"flood"`
	Retry    *string             `json:"retry"`
	Usage    *protocol.TurnUsage `json:"usage"`
	Stderr   *string             `json:"stderr"`
	Error    *Error              `json:"error"`
	Hang     *string             `json:"hang"`
	Exit     *uint64             `json:"exit"`
	Crash    *string             `json:"crash"`
	// EveryMS is the pause before each delta of text, thinking or flood but
	// the first.
	EveryMS *uint64 `json:"every_ms"`
}

// Tool is a call of a tool.
type Tool struct {
	Name string `json:"name"`
	// Input is any JSON value: a bad one is a fault worth playing.
	Input jsontext.Value `json:"input"`
}

// Flood is many deltas of one size.
type Flood struct {
	Count uint64 `json:"count"` // deltas
	Bytes uint64 `json:"bytes"` // of each
}

// Error is a failure of the provider.
type Error struct {
	Message string `json:"message"`
	// ContextWindow makes it the error of a context window that is exceeded.
	ContextWindow bool `json:"context_window" wire:"default"`
	// Reason is that of the response (SPEC §3.6); "" for none. RetryAfterMS goes with it.
	Reason       string `json:"reason" wire:"default" enum:"rate_limited,credentials,unreachable,budget_exceeded,content_refused"`
	RetryAfterMS uint64 `json:"retry_after_ms" wire:"default"`
}

// Parse decodes and checks a scenario file. The error names the member that is wrong
// (*strict.Error).
func Parse(text []byte) (*File, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("is %d bytes long, %d are allowed", len(text), MaxBytes)
	}
	var s File
	if err := strict.Unmarshal(text, &s, strict.RejectUnknown); err != nil {
		return nil, err
	}
	switch s.After {
	case "":
		s.After = "fail"
	case "fail", "repeat", "offline":
	default:
		return nil, wrong("after", fmt.Sprintf("must be fail, repeat or offline, is %q", s.After))
	}
	if len(s.Turns) == 0 {
		return nil, wrong("turns", "is empty")
	}
	for i, t := range s.Turns {
		path := fmt.Sprintf("turns[%d]", i)
		if t.Match != nil && *t.Match == "" {
			return nil, wrong(path+".match", "is empty")
		}
		for j, st := range t.Steps {
			if err := st.check(fmt.Sprintf("%s.steps[%d]", path, j)); err != nil {
				return nil, err
			}
		}
	}
	return &s, nil
}

// check finds what the types of a step cannot say.
func (s Step) check(path string) error {
	var given []string
	for _, member := range []struct {
		name  string
		there bool
	}{
		{"text", s.Text != nil},
		{"thinking", s.Thinking != nil},
		{"tool", s.Tool != nil},
		{"delay_ms", s.DelayMS != nil},
		{"flood", s.Flood != nil},
		{"retry", s.Retry != nil},
		{"usage", s.Usage != nil},
		{"stderr", s.Stderr != nil},
		{"error", s.Error != nil},
		{"hang", s.Hang != nil},
		{"exit", s.Exit != nil},
		{"crash", s.Crash != nil},
	} {
		if member.there {
			given = append(given, member.name)
		}
	}
	switch len(given) {
	case 0:
		return wrong(path, "must have one action, has none")
	case 1:
	default:
		return wrong(path, fmt.Sprintf("must have one action, has %d: %s", len(given), strings.Join(given, ", ")))
	}
	return errors.Join(
		oneOf(path+".hang", s.Hang, "until_aborted", "deaf"),
		oneOf(path+".crash", s.Crash, "panic", "kill"),
		within(path+".delay_ms", s.DelayMS, 0, maxMillis),
		within(path+".every_ms", s.EveryMS, 0, maxMillis),
		within(path+".exit", s.Exit, 0, maxExit),
		s.checkFlood(path+".flood"),
		s.checkError(path+".error"),
		s.checkPace(path+".every_ms"),
	)
}

func (s Step) checkFlood(path string) error {
	if s.Flood == nil {
		return nil
	}
	return errors.Join(
		within(path+".count", &s.Flood.Count, 1, MaxFlood),
		within(path+".bytes", &s.Flood.Bytes, 1, maxFloodBytes),
	)
}

func (s Step) checkError(path string) error {
	if s.Error == nil || s.Error.Reason == "" {
		return nil
	}
	return errors.Join(
		oneOf(path+".reason", &s.Error.Reason,
			protocol.RateLimited, protocol.Credentials, protocol.Unreachable, protocol.BudgetExceeded, protocol.ContentRefused),
		within(path+".retry_after_ms", &s.Error.RetryAfterMS, 0, maxMillis),
	)
}

func (s Step) checkPace(path string) error {
	if s.EveryMS != nil && s.Text == nil && s.Thinking == nil && s.Flood == nil {
		return wrong(path, "goes with text, thinking and flood only")
	}
	return nil
}

func oneOf(path string, value *string, words ...string) error {
	if value == nil {
		return nil
	}
	for _, word := range words {
		if *value == word {
			return nil
		}
	}
	return wrong(path, fmt.Sprintf("must be %s, is %q", strings.Join(words, " or "), *value))
}

func within(path string, value *uint64, least, most uint64) error {
	if value == nil || least <= *value && *value <= most {
		return nil
	}
	return wrong(path, fmt.Sprintf("must be %d to %d, is %d", least, most, *value))
}

func wrong(path, problem string) error { return &strict.Error{Path: path, Problem: problem} }
