package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor/proc"
)

const (
	// maxChecks is how many checkers run at once; others wait.
	maxChecks = 2
	// maxVerdict bounds what is read of an answer, in bytes: 200 diagnostics and
	// the rules.
	maxVerdict = 8 << 20
)

// checkers has code looked at by nexus-child check, each time in a process tree of
// its own. It is safe for concurrent use.
type checkers struct {
	child   string
	config  settingsSource // has the whole environment of a checker
	server  string         // our own program, which checks YAML; "" if it is not known
	cache   string         // what checkers keep of their own; the one that needs it makes it
	scratch string         // where each check has a directory
	guard   *proc.Guard
	log     *zap.Logger
	room    chan struct{} // one item for each that runs; those that wait leave with their ctx
}

func newCheckers(child string, current settingsSource, cfg *config.Config, guard *proc.Guard, log *zap.Logger) *checkers {
	server, err := os.Executable()
	if err != nil {
		log.Warn("YAML is not checked", zap.Error(err))
	}
	return &checkers{
		server: server,
		child:  child, config: current, cache: cfg.Home.CacheDir(), scratch: cfg.Home.ScratchDir(), guard: guard, log: log.Named("check"),
		room: make(chan struct{}, maxChecks),
	}
}

// Check implements [methods.CodeChecker]. When ctx ends, nothing of the checker is left.
func (c *checkers) Check(ctx context.Context, p api.ValidateCodeParams) (api.ValidateCodeResult, error) {
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-ctx.Done():
		return api.ValidateCodeResult{}, ctx.Err()
	}
	request, err := json.Marshal(protocol.CodeCheck{Code: p.Code, Language: p.Language, Rules: append([]string{}, protocol.Value(p.Rules)...), Cache: c.cache, Server: c.server})
	if err != nil {
		return api.ValidateCodeResult{}, fmt.Errorf("encode a check: %w", err)
	}
	text, exit, err := c.run(ctx, request)
	switch {
	case ctx.Err() != nil:
		return api.ValidateCodeResult{}, ctx.Err()
	case err != nil:
		return api.ValidateCodeResult{}, err
	}
	var answer protocol.CodeAnswer
	if err := strict.Unmarshal(text, &answer, strict.IgnoreUnknown); err != nil {
		return api.ValidateCodeResult{}, &protocol.CodeError{Kind: protocol.CheckerFailed, Message: fmt.Sprintf("the checker ended without an answer (status %d %s%s): %s", exit.Code, exit.Signal, exit.Limit, exit.Stderr)}
	}
	if answer.Failure != nil {
		return api.ValidateCodeResult{}, answer.Failure
	}
	if answer.Result == nil {
		return api.ValidateCodeResult{}, errors.New("nexus-child check gave neither a result nor a failure")
	}
	return api.ValidateCodeResult(*answer.Result), nil
}

// makeTemp makes a directory in the home; elsewhere if nothing can be written
// there, as code can be checked all the same.
func (c *checkers) makeTemp() (path string, remove func() error, err error) {
	if dir, err := safefile.MakeDir(c.scratch); err == nil {
		return dir.Path(), dir.Remove, nil
	}
	path, err = os.MkdirTemp("", "nexus-check-")
	return path, func() error { return safefile.RemoveBriefly(path) }, err
}

// run starts the process, gives it the request and reads the answer.
func (c *checkers) run(ctx context.Context, request []byte) ([]byte, proc.Exit, error) {
	// All that it makes is in here, so that nothing is left when it is killed.
	temp, remove, err := c.makeTemp()
	if err != nil {
		return nil, proc.Exit{}, fmt.Errorf("make a directory for a check: %w", err)
	}
	defer func() {
		if err := remove(); err != nil {
			c.log.Warn("remove the directory of a check", zap.Error(err))
		}
	}()
	p, err := proc.Start(proc.Spec{
		Argv: []string{c.child, "check"}, Env: append(slices.Clone(c.config.settings().childEnv), "TMPDIR="+temp), Log: c.log, Guard: c.guard,
		Limits: proc.Limits{MemoryBytes: 4 << 30, Processes: 1024, CPUSeconds: 2 * api.MaxCheckTimeout},
	})
	if err != nil {
		return nil, proc.Exit{}, fmt.Errorf("start a checker: %w", err)
	}
	ended := make(chan struct{})
	go func() { // joined below; ctx kills the tree and with it everything here
		defer close(ended)
		select {
		case <-ctx.Done():
			p.Stop(ctx, nil)
		case <-p.Done():
		}
	}()
	_, err = p.Write(request)
	if err == nil {
		err = p.CloseStdin()
	}
	text, readErr := io.ReadAll(io.LimitReader(p.Stdout(), maxVerdict))
	exit := p.Stop(ctx, nil)
	<-ended
	return text, exit, errors.Join(err, readErr)
}
