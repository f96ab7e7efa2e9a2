package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/sessionlog"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor/broker"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/stdio"
)

// status is what this process tells of itself.
type status struct {
	home     string
	lock     *cli.HomeLock
	sessions *sessions.Catalogue
	config   *configuration
	models   *broker.Broker
	spares   *stdio.Spares
	logs     *sessionlog.Recorder // nil if sessions are not logged
	machines *membership
	agents   cluster.Counter
	version  string
}

func (s status) Checks() []httpd.Check {
	return []httpd.Check{
		{Name: "home", Err: cmp.Or(s.lock.Check(), checkWritable(s.home), checkWritable(s.sessions.Dir("named")))},
		{Name: "broker", Err: s.models.Check()},
	}
}

func (s status) Warnings() []string {
	all := append(s.config.warnings(), s.machines.warnings()...)
	if s.logs == nil {
		return all
	}
	return append(all, s.logs.Warnings()...)
}

func (s status) Spares() (waiting int, used uint64) { return s.spares.Stats() }

func (s status) Models() metrics.Models {
	stats := s.models.Stats()
	m := metrics.Models{Running: stats.Running}
	for name, t := range stats.Providers {
		m.Services = append(m.Services, metrics.Service{
			Provider: name,
			Requests: map[string]uint64{
				"answered": t.Answered, "failed": t.Failed, "unreachable": t.Unreachable, "abandoned": t.Abandoned, "refused": t.Refused,
			},
			Tokens: map[string]uint64{
				"input": t.Used.Input, "output": t.Used.Output, "cache_read": t.Used.CacheRead, "cache_creation": t.Used.CacheCreation,
			},
			Estimated: t.Used.Estimated, Cost: t.Used.Cost,
		})
	}
	return m
}

// checkWritable says why nothing can be saved in a directory; nil if something can, or if
// the directory is not there: it is made when it is needed.
func checkWritable(dir string) error {
	err := safefile.Probe(dir, 4096)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("nothing can be saved: %w", err)
}
