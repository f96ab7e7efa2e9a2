package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// What becomes of a session, or of the record of a run, of another home that is to be brought in.
const (
	// BringComes is one that would come (of a dry run), BringCame one that has come.
	BringComes, BringCame = "comes", "brought"
	// BringThere is one that the cluster has already, under that name.
	BringThere = "there"
	// BringConflict is one whose name another one has, or that of the agent that created it. Nothing of either was changed.
	BringConflict = "conflict"
	// BringRefused is one that cannot come. Nothing of it is here.
	BringRefused = "refused"
)

// Brought says what became of a session of another home.
type Brought struct {
	Session  string `json:"session"`  // its name there
	AgentID  string `json:"agent_id"` // and here
	Messages uint64 `json:"message_count"`
	Outcome  string `json:"outcome"`
	// Reason is why it did not come, or what it lacks here.
	Reason string `json:"reason,omitempty"`
}

// BringOptions say how sessions are brought in.
type BringOptions struct {
	// Prefix, unless "", begins the name here of each session whose own name another one has.
	Prefix string
	// DryRun brings nothing.
	DryRun bool
}

// Bring makes the sessions of another home, which no server uses, sessions of this machine's in its cluster: it claims each name, copies what is saved, and ships it
// to a majority of the machines, one after the other. One that the cluster has already stays as it is. It returns what became of each, by
// name; on an error, of those before. It may be called again then, and goes on. It ends soon after ctx does, also within a session.
func Bring(ctx context.Context, r *Registry, from *sessions.Catalogue, o BringOptions) (all []Brought, err error) {
	if r.o.Claims == nil {
		return nil, errors.New("this server is in no cluster")
	}
	if r.o.Claims.Draining() {
		return nil, fmt.Errorf("the machine %s drains, and takes no agents: ask another one", r.o.Claims.Self())
	}
	if err := r.o.Claims.Check(); err != nil {
		return nil, NoQuorum(err, "which machine has %s is not known", "an agent")
	}
	names, err := sessions.Names(from)
	if err != nil {
		return nil, err
	}
	strays, err := sessions.Strays(from)
	if err != nil {
		return nil, err
	}
	for _, stray := range strays {
		all = append(all, Brought{Session: stray.Name, AgentID: stray.Name, Outcome: BringRefused, Reason: stray.Reason})
	}
	names = slices.DeleteFunc(names, api.IsTemp)
	slices.Sort(names)
	b := bringing{r: r, from: from, o: o, to: map[string]string{}, here: map[string]string{}}
	for _, name := range names {
		one, err := b.look(ctx, name)
		if err != nil {
			return nil, err // nothing has come
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b Brought) int { return cmp.Compare(a.Session, b.Session) })
	for i := range all {
		if err := b.one(ctx, &all[i]); err != nil {
			return all[:i], err
		}
	}
	return all, nil
}

// bringing is one Bring.
type bringing struct {
	r    *Registry
	from *sessions.Catalogue
	o    BringOptions
	to   map[string]string // what sessions are called here, by their names there; "" where another one has the name
	here map[string]string // what those that come are called there, by their names here
}

// look says what is to become of a session, as far as it depends on it alone.
func (b *bringing) look(ctx context.Context, name string) (Brought, error) {
	one := Brought{Session: name, AgentID: name, Outcome: BringComes}
	err := sessions.Comes(b.from, name)
	var saved transcript.Summary
	if err == nil {
		saved, err = sessions.SummaryWithin(ctx, b.from, name)
	}
	if ctx.Err() != nil {
		return one, context.Cause(ctx)
	}
	if err != nil {
		one.Outcome, one.Reason = BringRefused, err.Error()
		return one, nil
	}
	one.Messages = saved.Messages
	is := session{name, saved.Header.SessionID}
	has, err := b.there(ctx, name, is)
	if err == nil && has.outcome == BringConflict && b.o.Prefix != "" {
		if one.AgentID = b.o.Prefix + name; !api.ValidAgentID(one.AgentID) {
			one.Outcome, one.Reason = BringRefused, fmt.Sprintf("%q is no name of an agent", one.AgentID)
			return one, nil
		}
		has, err = b.there(ctx, one.AgentID, is)
	}
	if err != nil {
		return one, err
	}
	one.Outcome = has.outcome
	switch other, taken := b.here[one.AgentID]; {
	case has.outcome == BringComes && taken:
		one.Outcome, b.to[name] = BringConflict, ""
		one.Reason = other + " gets that name"
	case has.outcome == BringComes:
		b.to[name], b.here[one.AgentID] = one.AgentID, name
	case has.outcome != BringConflict:
		b.to[name] = one.AgentID
	case has.beyond: // whose agent is the same
		b.to[name] = one.AgentID
		one.Reason = "it went on there since it came: the machine " + has.machine + " has not all that was said in it"
	case has.large:
		b.to[name] = ""
		one.Reason = "the machine " + has.machine + " has a session of that name that is too large to be compared"
	default:
		b.to[name] = ""
		one.Reason = "the machine " + has.machine + " has another session of that name"
	}
	return one, nil
}

// session is one of the other home.
type session struct{ name, id string }

// found is what the cluster has of the name of a session.
type found struct {
	outcome string // BringComes for nothing
	machine string // that has it
	beyond  bool   // of a conflict: it is the same session, and something was said in the other home that was not here
	large   bool   // of a conflict: it is too large to be read
}

// there says whether the cluster has a session of that name: is, as far as it was said here, or another one.
func (b *bringing) there(ctx context.Context, name string, is session) (has found, err error) {
	claims := b.r.o.Claims
	of, owned := claims.Owner(name)
	if !owned {
		of = claims.Self() // what is saved here and not claimed yet
	}
	has = found{outcome: BringConflict, machine: of}
	look := func(c *sessions.Catalogue) error {
		saved, err := sessions.SummaryWithin(ctx, c, name)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if has.large = errors.Is(err, sessions.ErrTooLarge); err != nil || saved.Header.SessionID != is.id { // one that cannot be read is another one
			return nil
		}
		has.beyond, err = sessions.Beyond(ctx, b.from, is.name, c, name)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, sessions.ErrTooLarge):
			has.large = true
			return nil
		case err == nil && !has.beyond:
			has.outcome = BringThere
		}
		return err
	}
	if of != claims.Self() {
		if err := claims.LookAt(ctx, name, look); err != nil {
			return has, fmt.Errorf("look which session the machine %s has of the name %s: %w", of, name, err)
		}
		return has, nil
	}
	defer b.r.locks.Lock(name)()
	if b.r.o.Sessions.There(name) {
		return has, look(b.r.o.Sessions)
	}
	if _, err := b.r.o.Supervisor.Agent(name); err != nil {
		has.outcome = BringComes
	}
	return has, nil
}

// one brings one session, unless it is a dry run. An error is of the cluster: nothing more is brought then.
func (b *bringing) one(ctx context.Context, one *Brought) error {
	if one.Outcome != BringComes {
		return nil
	}
	saved, err := sessions.SummaryWithin(ctx, b.from, one.Session)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		one.Outcome, one.Reason = BringRefused, err.Error()
		return nil
	}
	creator := ""
	if was := protocol.Value(saved.Settings.ParentAgentID); was != "" {
		switch now, known := b.to[was]; {
		case known && now == "":
			one.Outcome, one.Reason = BringConflict, fmt.Sprintf("it was created by %s, which another one is called here", was)
			return nil
		case now != was:
			creator = now
		}
	}
	if cwd := protocol.Value(saved.Settings.Cwd); cwd != "" {
		if info, err := os.Stat(cwd); err != nil || !info.IsDir() {
			one.Reason = fmt.Sprintf("its directory %s is not on this machine", cwd)
		}
	}
	if b.o.DryRun {
		return nil
	}
	err = b.bring(ctx, one, creator)
	var bad *sessions.Error
	switch {
	case err == nil:
		one.Outcome = BringCame
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, sessions.ErrExists): // it came just now
		one.Outcome, one.Reason = BringConflict, err.Error()
	case errors.As(err, &bad), errors.Is(err, supervisor.ErrUnrecorded):
		one.Outcome, one.Reason = BringRefused, err.Error()
	default:
		return fmt.Errorf("bring in %s: %w", one.Session, err)
	}
	return nil
}

// bring claims, copies and ships one session. What was copied when its caller's context ends is shipped all the same.
func (b *bringing) bring(caller context.Context, one *Brought, creator string) error {
	r, id, ctx := b.r, one.AgentID, context.WithoutCancel(caller)
	defer r.locks.Lock(id)()
	if _, err := r.o.Supervisor.Agent(id); err == nil {
		return &sessions.Error{Name: id, Err: sessions.ErrExists}
	}
	if err := claimSession(ctx, r, id); err != nil {
		return err
	}
	defer release(ctx, r, id) // if nothing comes of it
	r.replaced(id)
	if err := sessions.Bring(caller, r.o.Sessions, b.from, one.Session, id, creator); err != nil {
		return err
	}
	err := r.o.Claims.Ship(ctx, id)
	if errors.Is(err, supervisor.ErrUnrecorded) || errors.Is(err, supervisor.ErrNoRoom) { // the machines would never have it
		return errors.Join(err, forget(ctx, r, id), r.o.Sessions.Delete(id))
	}
	return err // what is claimed and here is shipped as soon as there is a majority
}
