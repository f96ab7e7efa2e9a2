package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/suggest"
)

// maxRate bounds Server.RequestsPerMinute.
const maxRate = 1_000_000

// originHost is a host in an origin, and the port where it is not the scheme's own. Each agent
// reads a configuration, few of which have origins.
var originHost = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?$`)
})

var defaultPorts = map[string]string{"http": "80", "https": "443"}

func (s Server) check() error {
	if s.RequestsPerMinute > maxRate {
		return &strict.Error{Path: "server.requests_per_minute", Problem: fmt.Sprintf("is more than %d", maxRate)}
	}
	if protocol.Value(s.Spares) > MaxSpares {
		return &strict.Error{Path: "server.spares", Problem: fmt.Sprintf("is more than %d", MaxSpares)}
	}
	for i, origin := range s.AllowedOrigins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || !originHost().MatchString(u.Host) || u.Port() == defaultPorts[u.Scheme] && u.Port() != "" ||
			origin != strings.ToLower(u.Scheme+"://"+u.Host) {
			return &strict.Error{
				Path:    fmt.Sprintf("server.allowed_origins[%d]", i),
				Problem: "is no origin as a browser writes it: want scheme://host or scheme://host:port, in lower case, without a wildcard or the scheme's own port",
			}
		}
	}
	return nil
}

var roleNames = []string{"planner", "executor"}

// check finds values that the types allow and the meaning does not.
func (f file) check() error {
	for name, p := range f.Presets {
		if err := checkPreset(name, p); err != nil {
			return err
		}
	}
	if f.Server != nil {
		if err := f.Server.check(); err != nil {
			return err
		}
	}
	if f.Sessions != nil {
		if err := f.Sessions.check(); err != nil {
			return err
		}
	}
	if f.Logs != nil {
		if err := f.Logs.check(); err != nil {
			return err
		}
	}
	if f.Tools != nil {
		if err := f.Tools.check(); err != nil {
			return err
		}
	}
	if f.Settings != nil {
		if e, ok := errors.AsType[*strict.Error](f.Settings.Check()); ok {
			return &strict.Error{Path: "settings." + e.Path, Problem: e.Problem}
		}
	}
	if err := f.checkKinds(); err != nil {
		return err
	}
	for name := range f.Roles {
		if !slices.Contains(roleNames, name) {
			return &strict.Error{Path: "roles." + name, Problem: "is not known, want planner or executor", Nearest: suggest.Nearest(name, roleNames)}
		}
	}
	for name, p := range f.Providers {
		path := "providers." + name
		switch {
		case name == "" || strings.Contains(name, "/"):
			return &strict.Error{Path: path, Problem: "is no name: it is empty or has a slash"}
		case protocol.CheckModelName(name) != nil:
			return fmt.Errorf("the name of a provider: %w", protocol.CheckModelName(name))
		case checkEnums(p, path) != nil:
			return checkEnums(p, path)
		case p.Type == "":
			return &strict.Error{Path: path + ".type", Problem: "is missing, which only a provider that is known by name may leave out"}
		case p.APIKeyEnv != "" && !protocol.IsVariableName(p.APIKeyEnv): // it may be a key, so it is not quoted
			return &strict.Error{Path: path + ".api_key_env", Problem: "is no name of an environment variable"}
		case p.MaxTokens < 0:
			return &strict.Error{Path: path + ".max_tokens", Problem: "is less than 0"}
		case (p.Thinking != "" || p.MaxTokens != 0) && p.Type != "anthropic":
			return &strict.Error{Path: path, Problem: `has thinking or max_tokens, which are for type "anthropic" alone`}
		}
		if u, err := url.Parse(p.BaseURL); p.BaseURL != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
			return &strict.Error{Path: path + ".base_url", Problem: "is no http or https URL"}
		}
		for i, m := range p.Models {
			member := fmt.Sprintf("%s.models[%d]", path, i)
			if slices.ContainsFunc(p.Models[:i], func(other Model) bool { return other.ID == m.ID }) {
				return &strict.Error{Path: member + ".id", Problem: fmt.Sprintf("is %q, which the list has already", m.ID)}
			}
			if m.ID == "" {
				return &strict.Error{Path: member + ".id", Problem: "is empty"}
			}
			if problem := checkPrice(m.Price); problem != "" {
				return &strict.Error{Path: member + ".price", Problem: problem}
			}
			if err := protocol.CheckModelName(m.ID); err != nil {
				return &strict.Error{Path: member + ".id", Problem: "cannot be chosen: " + err.Error()}
			}
			if err := protocol.CheckModelName(m.Name); m.Name != "" && err != nil {
				return &strict.Error{Path: member + ".name", Problem: "cannot be shown: " + err.Error()}
			}
		}
	}
	return nil
}

// maxPrice bounds a price, in US dollars for a million tokens.
const maxPrice = 1e6

func checkPrice(p *protocol.Price) string {
	if p == nil {
		return ""
	}
	for _, dollars := range []*float64{&p.Input, &p.Output, p.CacheRead, p.CacheWrite} {
		if dollars != nil && (*dollars < 0 || *dollars > maxPrice) {
			return fmt.Sprintf("is not from 0 to %d dollars for a million tokens", int(maxPrice))
		}
	}
	return ""
}

// checkProject refuses what a project's file may not say: what agents may
// spend, and providers that would be sent a key, that lie elsewhere than on this
// machine, or that have the name of a person's own. The file may be anybody's,
// the agent's too (child/AGENT.md, D12).
func (c *Config) checkProject(f file) error {
	for _, member := range []struct {
		path  string
		given bool
		whose string
	}{
		{"limits", f.Limits != nil, "the server's"},
		{"server", f.Server != nil, "the server's"},
		{"sessions", f.Sessions != nil, "a person's"},
		{"logs", f.Logs != nil, "the server's"},
		{"tools", f.Tools != nil, "a person's"},
		{"settings", f.Settings != nil, "a person's"},
		{"roles", len(f.Roles) > 0, "the server's"},
		{"kinds", len(f.Kinds) > 0, "the server's"},
		{"allowed_paths", f.AllowedPaths != nil, "a person's"},
	} {
		if member.given {
			return &strict.Error{Path: member.path, Problem: "is " + member.whose + " to say: move it to config.json in the home"}
		}
	}
	for name, p := range f.Providers {
		problem := ""
		switch {
		case p.Type != "offline" && p.AuthMethod != "none":
			problem = `would be sent a key, which a project's file may not decide: set its auth_method to "none", or move it to config.json in the home`
		case p.Type != "offline" && !local(p.BaseURL):
			problem = "lies elsewhere, and a project's file may not decide where a conversation is sent: move it to config.json in the home"
		case c.own[name]:
			problem = "is not the project's to replace: give it another name"
		}
		if problem != "" {
			return &strict.Error{Path: "providers." + name, Problem: problem}
		}
	}
	return nil
}

func local(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// checkReferences reports a provider, a model or a preset that a file names and that
// neither it nor an earlier file defines, and what no agent could hold in a preset; nil
// if there is none. The file has been
// laid over the earlier ones.
func (c *Config) checkReferences(f file) error {
	if f.DefaultProvider != "" {
		if err := c.checkProvider("default_provider", f.DefaultProvider); err != nil {
			return err
		}
	}
	if f.DefaultModel != "" {
		if err := c.checkModel("default_model", Wish{Model: f.DefaultModel}); err != nil {
			return err
		}
	}
	if f.Settings != nil && protocol.Value(f.Settings.FallbackModel) != "" {
		if err := c.checkModel("settings.fallback_model", Wish{Model: *f.Settings.FallbackModel}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Profiles)) {
		p := f.Profiles[name]
		if err := c.checkChoices("profiles."+name, p.Provider, p.Model, p.Preset); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Presets)) {
		_, err := rights.Clean(c.Presets[name]) // its paths have no "~" any more
		if e, ok := errors.AsType[*strict.Error](err); ok {
			return &strict.Error{Path: "presets." + name + "." + e.Path, Problem: e.Problem}
		} else if err != nil {
			return err
		}
		if i := rights.Everything(c.Presets[name].WritePaths); i >= 0 {
			return &strict.Error{Path: fmt.Sprintf("presets.%s.write_paths[%d]", name, i), Problem: rights.NotEverything}
		}
	}
	if f.AllowedPaths != nil {
		if _, err := rights.Clean(protocol.Permissions{Preset: rights.Default, AllowedPaths: c.AllowedPaths}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Kinds)) {
		if models := f.Kinds[name].Models; models != "" {
			if err := c.checkProvider("kinds."+name+".models", models); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Roles)) {
		r := f.Roles[name]
		if k := c.Kinds[r.Kind]; r.Kind != "" && len(k.Command) == 0 {
			return unknown("roles."+name+".kind", r.Kind, "kind that names its program", c.kindsWithProgram())
		}
		if r.Kind != "" {
			r.Model = "" // it is the program's to know
		}
		if err := c.checkChoices("roles."+name, r.Provider, r.Model, r.Preset); err != nil {
			return err
		}
		basis := cmp.Or(c.Presets[r.Preset].Preset, r.Preset)
		if basis == rights.Yolo && (r.Preset != rights.Yolo || !c.Server.AllowYolo) {
			return &strict.Error{Path: "roles." + name + ".preset", Problem: "is yolo, which agents of the server are only as yolo itself and with server.allow_yolo"}
		}
	}
	return nil
}

// checkChoices is checkReferences for the members provider, model and preset of the
// object at path; "" chooses nothing.
func (c *Config) checkChoices(path, provider, model, preset string) error {
	if provider != "" {
		if err := c.checkProvider(path+".provider", provider); err != nil {
			return err
		}
	}
	if model != "" {
		if err := c.checkModel(path+".model", Wish{Provider: provider, Model: model}); err != nil {
			return err
		}
	}
	presets := append(slices.Sorted(maps.Keys(c.Presets)), rights.Presets()...)
	if preset != "" && !slices.Contains(presets, preset) {
		return unknown(path+".preset", preset, "preset", presets)
	}
	return nil
}

func (c *Config) checkProvider(path, name string) error {
	if names := c.Models.Names(); !slices.Contains(names, name) {
		return unknown(path, name, "provider", names)
	}
	return nil
}

// checkModel reports why w cannot be chosen.
func (c *Config) checkModel(path string, w Wish) error {
	_, err := c.Models.Choose(w)
	if e, ok := errors.AsType[*UnknownProviderError](err); ok {
		return &strict.Error{
			Path: path, Problem: fmt.Sprintf("is %q, and there is no provider %q, want one of %s", w.Model, e.Provider, list(e.Known)),
			Nearest: e.nearest(),
		}
	}
	switch e, listed := errors.AsType[*UnknownModelError](err); {
	case listed:
		problem := fmt.Sprintf("is %q, which no list of models has, and the models of %q are %s", w.Model, e.Provider, list(e.Known))
		if w.Provider == "" {
			problem += ": choose a model of another provider as PROVIDER/MODEL"
		}
		return &strict.Error{Path: path, Problem: problem, Nearest: suggest.Nearest(w.Model, e.Known)}
	case err != nil:
		return &strict.Error{Path: path, Problem: "cannot be chosen: " + err.Error()}
	default:
		return nil
	}
}

// unknownValue is the error of a member that has none of the values that it may have;
// "" among them is the default.
func unknownValue(path, got string, values []string) error {
	values = slices.DeleteFunc(slices.Clone(values), func(value string) bool { return value == "" })
	return &strict.Error{
		Path: path, Problem: fmt.Sprintf("is %q, want one of %s", got, strings.Join(values, ", ")), Nearest: suggest.Nearest(got, values),
	}
}

func unknown(path, name, kind string, known []string) error {
	return &strict.Error{
		Path: path, Problem: fmt.Sprintf("is %q, and there is no such %s, want one of %s", name, kind, strings.Join(known, ", ")),
		Nearest: suggest.Nearest(name, known),
	}
}

// Warnings tells what keeps some of the configuration from being used, one
// sentence for each: the keys that are missing of providers that a file defines or
// names, sorted, and what ModelWarning says. It never quotes a key.
func (c *Config) Warnings() (warnings []string) {
	for _, name := range c.UsedProviders() {
		if _, err := c.Key(Choice{Name: name, Provider: c.Models.providers[name]}); err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	if warning := c.ModelWarning(); warning != "" {
		warnings = append(warnings, warning)
	}
	return warnings
}

// ModelWarning tells what keeps agents that name no model from their work; "" for nothing.
func (c *Config) ModelWarning() string {
	if choice, err := c.Models.Choose(Wish{}); err != nil {
		return "an agent that names no model cannot start: " + err.Error()
	} else if _, priced := choice.Provider.Price(choice.Model); c.Limits.CostUSD > 0 && !priced {
		return fmt.Sprintf("limits.cost_usd keeps agents from the default model, as the price of %q of provider %q is not known: add it to the models of this provider", choice.Model, choice.Name)
	}
	return ""
}

// UsedProviders are the names of the providers that a file defines or names, and that of the default one, sorted.
func (c *Config) UsedProviders() []string {
	used := map[string]bool{c.Models.fallback(): true}
	for name, p := range c.Models.providers {
		if !reflect.DeepEqual(c.vendor(name), p) {
			used[name] = true
		}
	}
	choose := func(provider, model string) {
		if choice, err := c.Models.Choose(Wish{Provider: provider, Model: model}); err == nil {
			used[choice.Name] = true
		} else if provider != "" {
			used[provider] = true
		}
	}
	if c.Models.defaultModel != "" {
		choose("", "")
	}
	for _, p := range c.Profiles {
		choose(p.Provider, p.Model)
	}
	for _, r := range c.Roles {
		choose(r.Provider, r.Model)
	}
	if model := protocol.Value(c.Settings.FallbackModel); model != "" {
		choose("", model)
	}
	return slices.Sorted(maps.Keys(used))
}

// checkPreset finds what is wrong with a preset. Whether its paths can be used is for
// the agent to say.
func checkPreset(name string, p protocol.Permissions) error {
	member := "presets." + name
	switch {
	case rights.Builtin(name):
		return &strict.Error{Path: member, Problem: "is the name of a built-in preset"}
	case protocol.CheckModelName(name) != nil:
		return fmt.Errorf("the name of a preset: %w", protocol.CheckModelName(name))
	case !rights.Builtin(p.Preset):
		return &strict.Error{Path: member + ".preset", Problem: fmt.Sprintf("is %q, want yolo, trusted or sandboxed", p.Preset)}
	}
	if e, ok := errors.AsType[*strict.Error](p.CheckTools(protocol.Permissions{})); ok {
		return &strict.Error{Path: member + "." + e.Path, Problem: e.Problem}
	}
	return nil
}

// checkPresets refuses what a project's file says about permissions: it comes
// from anybody, and the agent itself may write it (child/AGENT.md, D12).
func (f file) checkPresets() error {
	for name := range f.Presets {
		return &strict.Error{Path: "presets." + name, Problem: "stands in a project's file, which may define no presets: move it to config.json in the home"}
	}
	for name, p := range f.Profiles {
		if p.Preset != "" {
			return &strict.Error{Path: "profiles." + name + ".preset", Problem: "stands in a project's file, which may choose no preset: move it to config.json in the home"}
		}
	}
	return nil
}

// expanded puts the user's home in the place of a "~" at the beginning of a
// path.
func expanded(presets map[string]protocol.Permissions, home string) map[string]protocol.Permissions {
	each := func(paths []string) []string {
		for i, path := range paths {
			paths[i] = withHome(path, home)
		}
		return paths
	}
	for name, p := range presets {
		p.AllowedPaths, p.WritePaths, p.BlockedPaths = each(p.AllowedPaths), each(p.WritePaths), each(p.BlockedPaths)
		for tool, r := range p.Tools {
			r.AllowedPaths, r.BlockedPaths = each(r.AllowedPaths), each(r.BlockedPaths)
			p.Tools[tool] = r
		}
		presets[name] = p
	}
	return presets
}

// besidesCwd are allowed paths without the working directory, which always is one, with the
// user's home in the place of a "~".
func besidesCwd(paths []string, home string) []string {
	besides := []string{}
	for _, path := range paths {
		if path != "." {
			besides = append(besides, withHome(path, home))
		}
	}
	return besides
}

func withHome(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
		return filepath.Join(home, rest)
	}
	return path
}
