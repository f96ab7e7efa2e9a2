package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/mcpfile"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor/broker"
	"nexus.internal/supervisor/stdio"
)

// settings are what one reading of the configuration decides. They are not changed.
type settings struct {
	cfg       *config.Config
	providers map[string]broker.Provider
	limits    broker.Limits // of agents that have none of their own
	front     bridge.Settings
	childEnv  []string // the whole environment of every child
	spares    int      // processes that wait to become agents
}

// settingsOf checks what a server has to be sure of, beyond what config checks.
func settingsOf(cfg *config.Config, o serveOptions, environ []string) (*settings, error) {
	limits, err := limitsOf(cfg)
	if err != nil {
		return nil, err
	}
	roles, err := rolesOf(cfg)
	if err != nil {
		return nil, err
	}
	certificate, err := o.remote.certificate()
	if err != nil {
		return nil, err
	}
	access := o.access(cfg)
	access.Certificate = certificate
	providers := brokerProviders(cfg)
	if err := broker.CheckProviders(providers); err != nil {
		return nil, err
	}
	return &settings{
		cfg: cfg, providers: providers, limits: limits, childEnv: childEnv(environ, cfg), spares: o.spareCount(cfg),
		front: bridge.Settings{
			AccessOptions: access,
			Settings:      agents.Settings{Roles: roles, Presets: presetsOf(cfg), AllowYolo: cfg.Server.AllowYolo},
		},
	}, nil
}

// misconfigured says where the configuration is wrong: err is what was found of its member within, by
// api.Check or by strict.
func misconfigured(cfg *config.Config, within string, err error) error {
	wrong := &strict.Error{Path: within, Problem: "is wrong: " + err.Error()}
	if e, ok := errors.AsType[*api.ParamError](err); ok {
		wrong.Path += "." + strings.TrimPrefix(e.Param, within+".")
		wrong.Problem = "is wrong: " + strings.TrimPrefix(e.Problem, "Invalid parameter "+e.Param+": ")
	} else if e, ok := errors.AsType[*strict.Error](err); ok {
		inner := *e
		inner.Path = within + "." + e.Path
		wrong = &inner
	}
	return cfg.Fault(wrong.Path, wrong)
}

// configuration is the one that holds. Agents read a copy of config.json, which is
// replaced together with what the server has of it: so nobody sees a half of another
// one, or one that the server refuses. It is safe for concurrent use.
type configuration struct {
	app *cli.App
	o   serveOptions
	log *zap.Logger

	ready  chan struct{}  // closed by serve
	models *broker.Broker // set by serve
	front  *bridge.Server // set by serve
	spares *stdio.Spares  // set by serve

	logs  config.Logs // since the start
	mu    sync.Mutex  // guards all below
	now   *settings
	fault error // why the last reload came to nothing; nil if it did not
}

func newConfiguration(app *cli.App, o serveOptions, log *zap.Logger) *configuration {
	return &configuration{app: app, o: o, log: log, ready: make(chan struct{})}
}

func copyPath(cfg *config.Config) string { return filepath.Join(cfg.Home.RunDir(), "config.json") }

// begin makes the first settings hold and writes the agents' copy.
func (c *configuration) begin(cfg *config.Config) error {
	first, err := settingsOf(cfg, c.o, c.app.Environ)
	if err != nil {
		return err
	}
	if err := writeCopy(cfg); err != nil {
		return err
	}
	c.now, c.logs = first, c.o.sessionLogs(cfg)
	c.warn()
	return nil
}

func writeCopy(cfg *config.Config) error {
	if err := safefile.Replace(copyPath(cfg), cfg.Personal(), false); err != nil {
		return fmt.Errorf("write the agents' copy of config.json: %w", err)
	}
	return nil
}

// serve names what another configuration is given to. It is called once; a reload waits
// for it.
func (c *configuration) serve(models *broker.Broker, front *bridge.Server, spares *stdio.Spares) {
	c.models, c.front, c.spares = models, front, spares
	close(c.ready)
}

// settings are those that hold.
func (c *configuration) settings() *settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// SparePlan implements [stdio.SparePlanner]. Where no agent can be made of a spare but one
// that asks for no limits, there are none.
func (c *configuration) SparePlan() stdio.SparePlan {
	s := c.settings()
	plan := stdio.SparePlan{Count: s.spares, Program: c.o.child, Env: s.childEnv}
	if stdio.LimitsNeedStart(s.limits.ProcessLimits) {
		plan.Count = 0
	}
	return plan
}

// reloadTelling is reload for a server that systemd watches (sd_notify(3)). It does
// nothing once ctx, and with it the server, has ended.
func (c *configuration) reloadTelling(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-c.ready:
	}
	log := c.log.Named("notify")
	sdNotify(log, fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, monotonicMicroseconds()))
	status := "STATUS=reloaded"
	if err := c.reload(); err != nil {
		status = "STATUS=not reloaded: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	sdNotify(log, daemon.SdNotifyReady+"\n"+status)
}

// reload reads the configuration anew. It holds for everybody then, or, where it has
// an error, for nobody; that is logged. One goroutine calls it.
func (c *configuration) reload() error {
	err := c.replace()
	c.mu.Lock()
	c.fault = err
	c.mu.Unlock()
	if err != nil {
		c.log.Error("the configuration was not reloaded, and the one from before holds", zap.Error(err))
		return err
	}
	c.log.Info("configuration reloaded")
	c.warn()
	return nil
}

func (c *configuration) replace() error {
	cfg, err := c.app.LoadConfig("")
	if err != nil {
		return err
	}
	next, err := settingsOf(cfg, c.o, c.app.Environ)
	if err != nil {
		return err
	}
	defer c.spares.Changed()
	return c.models.Reload(next.providers, next.limits, func() error {
		if err := writeCopy(cfg); err != nil {
			return err
		}
		c.front.Reload(next.front)
		c.mu.Lock()
		c.now = next
		c.mu.Unlock()
		return nil
	})
}

// warnings are for GET /readyz.
func (c *configuration) warnings() []string {
	c.mu.Lock()
	now, fault := c.now, c.fault
	c.mu.Unlock()
	warnings := c.warningsOf(now)
	if fault != nil {
		warnings = append(warnings, "not reloaded, and the configuration from before holds: "+fault.Error())
	}
	return warnings
}

// warningsOf tells what is wrong with a configuration, and with mcp.json beside it as it
// is now, and keeps no server from starting.
func warningsOf(cfg *config.Config) []string {
	warnings := cfg.Warnings()
	if err := mcpfile.Check(cfg.Home.Path("mcp.json")); err != nil {
		warnings = append(warnings, "agents that start have none of its MCP servers: "+err.Error())
	}
	return warnings
}

// warningsOf is the function of that name, and tells what does not hold before the next start.
func (c *configuration) warningsOf(s *settings) []string {
	warnings := warningsOf(s.cfg)
	if s.front.Certificate != nil {
		if warning := s.front.Certificate.Warning(time.Now()); warning != "" {
			warnings = append(warnings, warning)
		}
	}
	if !reflect.DeepEqual(c.o.sessionLogs(s.cfg), c.logs) {
		warnings = append(warnings, "logs were changed in config.json, and hold from the next start of the server")
	}
	return warnings
}

func (c *configuration) warn() {
	for _, warning := range c.warningsOf(c.settings()) {
		c.log.Warn("configuration", zap.String("warning", warning))
	}
}

// rolesOf are the agents that the configuration gives roles to.
func rolesOf(cfg *config.Config) (map[agents.Role]api.CreateAgentParams, error) {
	roles := map[agents.Role]api.CreateAgentParams{}
	for name, r := range cfg.Roles {
		p := api.CreateAgentParams{AgentID: new(cmp.Or(r.AgentID, name))}
		for _, one := range []struct {
			value  string
			target **string
		}{
			{r.Preset, &p.Preset}, {r.Cwd, &p.Cwd}, {r.Model, &p.Model}, {r.Provider, &p.Provider}, {r.SystemPrompt, &p.SystemPrompt}, {r.Approvals, &p.Approvals}, {r.Kind, &p.Kind},
		} {
			if one.value != "" {
				*one.target = &one.value
			}
		}
		if r.Limits != nil {
			p.Limits = &api.Limits{}
			text, err := json.Marshal(r.Limits)
			if err == nil {
				err = strict.Unmarshal(text, p.Limits, strict.RejectUnknown)
			}
			if err != nil {
				return nil, misconfigured(cfg, "roles."+name+".limits", err)
			}
		}
		if err := api.Check(p); err != nil {
			return nil, misconfigured(cfg, "roles."+name, err)
		}
		if info, err := os.Stat(r.Cwd); r.Cwd != "" && (err != nil || !info.IsDir()) {
			return nil, misconfigured(cfg, "roles."+name, api.Invalid("cwd", "%s is not a directory", r.Cwd))
		}
		roles[agents.Role(name)] = p
	}
	return roles, nil
}

func presetsOf(cfg *config.Config) map[string]string {
	presets := map[string]string{}
	for name, p := range cfg.Presets {
		presets[name] = p.Preset
	}
	return presets
}
