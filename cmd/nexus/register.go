package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/replay"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/format"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/register"
)

// The names under which the machines of a cluster keep, tell and ask.
const (
	keysValue  = "keys"
	ratesTopic = "rates"
	keyTopic   = "key"
	runName    = "plan/" // and the id of a run
)

// common is what the machines of a cluster keep together, as the façade knows it.
type common struct {
	r     *register.Register
	later *format.Later
}

func (m *membership) common() common { return common{m.register, m.later} }

var (
	_ auth.Common   = common{}
	_ replay.Agreed = common{}
	_ httpd.Others  = common{}
)

// A key for less is charged with what it has used for as long as the machines keep it.
const _ = uint(replay.AgreedFor - register.UsedFor)

// openKeys opens the keys of a server: those of its cluster if it is in one.
func (m *membership) openKeys(cfg *config.Config, port int) (*auth.Keyring, error) {
	path, records := cfg.Home.KeyPath(port), cfg.Home.Path("keys.json")
	if m == nil {
		return auth.OpenKeyring(path, records)
	}
	dir := cfg.Home.ClusterDir(m.o.Cluster, m.o.Machine)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return auth.OpenShared(path, records, auth.KeyPath(dir, auth.DefaultPort), m.common(), m.later)
}

// agreed is what the machines agree on of signatures; nil for a server alone.
func (m *membership) agreed() replay.Agreed {
	if m == nil {
		return nil
	}
	return m.common()
}

func (c common) Get() (text []byte, revision uint64, known bool) { return c.r.Get(keysValue) }

func (c common) Changed() <-chan struct{} { return c.r.Changed() }

func (c common) Put(ctx context.Context, text []byte, after uint64) (revision uint64, err error) {
	revision, err = c.r.Put(ctx, keysValue, text, after)
	if errors.Is(err, cluster.ErrChanged) {
		return 0, auth.ErrChanged
	}
	return revision, noMajority(err)
}

// noMajority is an error as the façade knows it.
func noMajority(err error) error {
	if errors.Is(err, cluster.ErrNoQuorum) {
		return fmt.Errorf("%w: %w", auth.ErrNoMajority, err)
	}
	return err
}

func (c common) Ask(ctx context.Context, question string) (answer string, err error) {
	text, err := c.r.Ask(ctx, keyTopic, []byte(question))
	return string(text), err
}

// answerer is an [auth.Answerer] as the register asks it.
type answerer struct{ auth.Answerer }

func (a answerer) Answer(question []byte) []byte {
	if answer := a.Answerer.Answer(string(question)); answer != "" {
		return []byte(answer)
	}
	return nil
}

func (c common) Answer(a auth.Answerer) (end func(), err error) {
	return c.r.Answer(keyTopic, answerer{a})
}

func (c common) Use(ctx context.Context, texts []string) error {
	err := c.r.Use(ctx, texts)
	if errors.Is(err, register.ErrUsed) {
		return replay.ErrUsed
	}
	return noMajority(err)
}

func (c common) Tell(text []byte) error { return c.r.Tell(ratesTopic, text) }

func (c common) Hear(l httpd.Listener) (end func(), err error) {
	return c.r.Hear(ratesTopic, listener{l, c.later})
}

// listener is an [httpd.Listener] that hears nothing of later formats.
type listener struct {
	httpd.Listener
	later *format.Later
}

func (l listener) Heard(text []byte) {
	if l.later.Note(format.Rates.Check(text)) == nil {
		l.Listener.Heard(text)
	}
}
