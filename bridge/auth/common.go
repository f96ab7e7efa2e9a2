package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/format"
)

// Common is what the machines of a cluster keep together of their keys: a text, of which each machine knows the latest revision a moment after it was
// made. It is safe for concurrent use.
type Common interface {
	// Get is the text as it is known here, and its revision, 0 if there is none. known is false before it was read for the first time.
	Get() (text []byte, revision uint64, known bool)
	// Changed is closed once Get may say something else than it would now.
	Changed() <-chan struct{}
	// Put replaces the text of a revision. The error is ErrChanged if another machine was quicker, or ErrNoMajority.
	Put(ctx context.Context, text []byte, after uint64) (revision uint64, err error)
	// Ask is the first answer of another machine to a question, which ctx bounds.
	Ask(ctx context.Context, question string) (answer string, err error)
	// Answer has a answer what other machines ask, until end is called.
	Answer(a Answerer) (end func(), err error)
}

// Answerer answers the questions of other machines; "" if it does not know.
type Answerer interface{ Answer(question string) string }

// Errors of a Common.
var (
	ErrChanged    = errors.New("another machine has changed the keys")
	ErrNoMajority = errors.New("a majority of the machines is not reached")
)

const (
	// changePatience bounds a change of the keys of a cluster.
	changePatience = 5 * time.Second
	// askPatience bounds the wait for a machine that knows the full key.
	askPatience = 500 * time.Millisecond
)

// shared is what a Keyring has of the keys of a cluster. A nil one is that of a server alone. mu of the Keyring guards all but common, later and path.
type shared struct {
	common Common
	later  *format.Later
	path   string   // of the file that has the cluster's full key for the next server of this machine
	kept   verifier // of the key in that file; "" for none
	joined bool     // the keys of the cluster are known
	unread error    // why they cannot be read; nil if they can
	// revision is that of the keys that are known, and full the cluster's full key of then; "" for none.
	revision uint64
	full     verifier
	// mine is the key that this server has made at its start, while the cluster's is another one: it is good here alone.
	mine *entry
	// texts are full keys by their hashes, as far as they are known here and may become the cluster's.
	texts map[verifier]Key
	// local are scoped keys of the time in which the server was alone. They become the cluster's; handed says that they have, and that their file has
	// to be written.
	local  []record
	handed bool
}

// own is the key that is good at this machine alone, if there is one.
func (s *shared) own() []*entry {
	if s == nil || s.mine == nil {
		return nil
	}
	return []*entry{s.mine}
}

// lacks reports whether the file for the next server has another key than this one of the cluster.
func (s *shared) lacks(full verifier) bool { return s != nil && s.full == full && s.kept != full }

// keep writes the cluster's full key for the next server of this machine.
func (s *shared) keep(key Key) error {
	if !s.lacks(key.verifier()) {
		return nil
	}
	err := key.write(s.path)
	if err == nil {
		s.kept = key.verifier()
	}
	return err
}

// OpenShared is OpenKeyring for a machine of a cluster: all keys are those of the cluster, as Follow learns them. The cluster has one full key, which lasts
// until a Rotate: the key of the first server. The full key's file has it as soon as it is known here, and kept is a file that has it for the
// next server of this machine. The key that the file has before is good at this machine alone, until the server ends or a Rotate of any machine. Scoped
// keys at records are given to the cluster. later takes what is met of later formats; nil takes nothing.
func OpenShared(path, records, kept string, common Common, later *format.Later) (*Keyring, error) {
	k, err := OpenKeyring(path, records)
	if err != nil {
		return nil, err
	}
	own := k.full.key
	k.shared = &shared{common: common, later: later, path: kept, local: recordsOf(k.scoped), texts: map[verifier]Key{own.verifier(): own}}
	for _, h := range k.scoped {
		h.end()
	}
	k.scoped = nil
	before, err := Read(kept)
	switch {
	case err == nil:
		k.shared.texts[before.verifier()], k.shared.kept = before, before.verifier()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// Unknown reports why a key that Check does not find may be good nevertheless: the keys of the cluster are not known here yet. It is nil otherwise.
func (k *Keyring) Unknown() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shared == nil || k.shared.joined {
		return nil
	}
	return cmp.Or(k.shared.unread, ErrNoMajority)
}

// Follow learns the keys of the cluster, and gives it those of this machine, until ctx ends or something of that fails, which may be tried again. Of a
// server alone it waits for ctx.
func (k *Keyring) Follow(ctx context.Context) error {
	if k.shared == nil {
		<-ctx.Done()
		return nil
	}
	end, err := k.shared.common.Answer(k)
	if err != nil {
		return err
	}
	defer end()
	for {
		changed := k.shared.common.Changed()
		if err := k.learn(ctx); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// learn takes the keys as they are now, and does what is to be done about them.
func (k *Keyring) learn(ctx context.Context) error {
	text, revision, known := k.shared.common.Get()
	if !known {
		return nil
	}
	if err := k.take(text, revision); err != nil {
		return err
	}
	if err := k.give(); err != nil {
		return err
	}
	return k.fetch(ctx)
}

// errSame says that there is nothing to change.
var errSame = errors.New("the keys are as they should be")

// give makes the first full key of the cluster, and has it have the scoped keys of this machine.
func (k *Keyring) give() error {
	k.mu.Lock()
	own, local, founded := k.full, k.shared.local, k.shared.full != ""
	k.mu.Unlock()
	if !founded || len(local) > 0 {
		var rest []record
		err := k.change(func(list []record) ([]record, error) {
			if slices.ContainsFunc(list, record.isLater) { // one may be the full key, or one of ours
				return nil, errSame
			}
			next := slices.Clone(list)
			if !slices.ContainsFunc(list, record.isFull) {
				next = append(next, recordsOf([]*entry{own})...)
			}
			next, rest = handOver(next, local)
			if len(next) == len(list) && len(rest) == len(local) {
				return nil, errSame
			}
			return next, nil
		})
		if err != nil && !errors.Is(err, errSame) {
			return err
		}
		k.mu.Lock()
		k.shared.handed = k.shared.handed || len(rest) < len(local)
		k.shared.local = rest
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.shared.handed {
		return nil
	}
	err := k.writeRecords(k.shared.local)
	k.shared.handed = err != nil
	return err
}

// handOver adds the scoped keys of a machine to those of the cluster; rest are those for which there is no room, which wait in their file.
func handOver(list, local []record) (all, rest []record) {
	for _, r := range local {
		switch {
		case slices.ContainsFunc(list, func(other record) bool { return other.Verifier == r.Verifier }):
		case scopedIn(list) >= MaxScoped:
			rest = append(rest, r)
		default:
			list = append(list, r)
		}
	}
	return list, rest
}

func (r record) isFull() bool  { return r.Scope == ScopeFull }
func (r record) isLater() bool { return r.later != nil }

// scopedIn is how many scoped keys there are.
func scopedIn(list []record) (n int) {
	for _, r := range list {
		if !r.isFull() {
			n++
		}
	}
	return n
}

// fetch asks the other machines for the text of the full key, if it is not known here.
func (k *Keyring) fetch(ctx context.Context) error {
	k.mu.Lock()
	want, unknown := k.shared.full, k.full.key.IsZero()
	k.mu.Unlock()
	if !unknown {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	answer, err := k.shared.common.Ask(asked, string(want))
	if err != nil {
		return fmt.Errorf("no machine that is reached knows the full key of the cluster: the key file has one of this machine alone: %w", err)
	}
	key, err := Parse(answer)
	if err != nil || key.verifier() != want {
		return errors.New("a machine answers with another key than the full one of the cluster")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shared.texts[want] = key
	if k.full.verifier != want {
		return nil // it was replaced meanwhile
	}
	k.full.key = key
	return k.writeOrLater()
}

// Answer implements [Answerer]: the full key of a hash.
func (k *Keyring) Answer(question string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if string(k.full.verifier) == question && k.shared.full == k.full.verifier {
		return k.full.key.Reveal()
	}
	return ""
}

// change changes the keys of the cluster. f gets those that have not expired, again where another machine was quicker.
func (k *Keyring) change(f func([]record) ([]record, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), changePatience)
	defer cancel()
	for {
		changed := k.shared.common.Changed()
		text, revision, known := k.shared.common.Get()
		if !known {
			return ErrNoMajority
		}
		list, err := decodeShared(text)
		if err != nil {
			return err
		}
		list, err = f(slices.DeleteFunc(list, func(r record) bool { return !r.Expires.IsZero() && !r.Expires.After(time.Now()) }))
		if err != nil {
			return err
		}
		if text, err = json.Marshal(records{list}); err != nil {
			return err
		}
		if revision, err = k.shared.common.Put(ctx, text, revision); err == nil {
			return k.take(text, revision)
		}
		if !errors.Is(err, ErrChanged) {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ErrNoMajority
		}
	}
}

// unreadError is an ErrNoMajority: this machine has no part in what the others agree on, as a later program has written it.
type unreadError struct{ *format.LaterError }

func (*unreadError) Is(target error) bool { return target == ErrNoMajority }
func (e *unreadError) Unwrap() error      { return e.LaterError }

func decodeShared(text []byte) ([]record, error) {
	if len(text) == 0 {
		return nil, nil
	}
	list, err := decodeRecords(text, true)
	if later, ok := errors.AsType[*format.LaterError](err); ok {
		return nil, &unreadError{later}
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of the cluster, as a later version may have written them: %w", err)
	}
	return list, nil
}

// take takes keys of the cluster for those that are good here: keys that were known go on with what is under way, others end. The error is
// an UnsavedError where the full key's file could not be written.
func (k *Keyring) take(text []byte, revision uint64) error {
	list, err := decodeShared(text)
	if _, later := errors.AsType[*format.LaterError](k.shared.later.Note(err)); later {
		k.endUnread(err)
	}
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(r record) bool {
		_ = k.shared.later.Note(format.Key.Check(r.later))
		return r.isLater()
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.shared
	if k.closed || s.joined && revision <= s.revision {
		return nil
	}
	s.joined, s.unread, s.revision = true, nil, revision
	before := slices.Concat(k.old, k.scoped)
	if s.full != "" {
		before = append(before, k.full)
	}
	var full *entry
	k.old, k.scoped = nil, nil
	for _, r := range list {
		h := k.known(before, r)
		switch {
		case !r.isFull():
			k.scoped = append(k.scoped, h)
		case r.Expires.IsZero():
			full = h
		default:
			k.old = append(k.old, h)
		}
	}
	for _, h := range before {
		if !slices.ContainsFunc(list, func(r record) bool { return r.Verifier == h.verifier }) {
			h.end()
		}
	}
	if full == nil { // there is none yet: the first machine makes it
		return nil
	}
	k.replaceFull(full)
	if !k.stands() {
		return nil
	}
	return k.writeOrLater()
}

// endUnread ends the scoped keys, of which the cluster may have revoked any: its list has a later format. The full key stays, by which this server is ended.
func (k *Keyring) endUnread(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.scoped {
		h.end()
	}
	k.scoped, k.shared.joined, k.shared.unread = nil, false, why
}

// known is the entry of a record: the one that there was, with its end if that is another one now, or a new one. mu is held.
func (k *Keyring) known(before []*entry, r record) *entry {
	if k.full.verifier == r.Verifier { // also the one that this machine has made
		before = append(before, k.full)
	}
	for _, h := range before {
		if h.verifier != r.Verifier {
			continue
		}
		if h.Expires.Equal(r.Expires) {
			return h
		}
		return h.until(r.Expires)
	}
	return newEntry(r.grant(), k.shared.texts[r.Verifier], r.Verifier)
}

// replaceFull makes an entry the full key. The one that this machine has made goes on to be good here, until the cluster's is replaced. mu is held.
func (k *Keyring) replaceFull(full *entry) {
	s := k.shared
	switch {
	case s.full == full.verifier:
	case s.full == "" && k.full.verifier != full.verifier:
		s.mine = k.full
	case s.full != "" && s.mine != nil:
		at := slices.IndexFunc(k.old, func(h *entry) bool { return h.verifier == s.full })
		if at >= 0 {
			s.mine = s.mine.until(k.old[at].Expires)
		} else {
			s.mine.end()
			s.mine = nil
		}
	}
	k.full, s.full = full, full.verifier
}

// rotateShared is Rotate for a cluster.
func (k *Keyring) rotateShared(grace time.Duration) (Grant, error) {
	key, now := Generate(), time.Now()
	k.mu.Lock()
	k.shared.texts[key.verifier()] = key // also if it is not known whether it was taken
	k.mu.Unlock()
	made := record{Verifier: key.verifier(), Scope: ScopeFull, Created: now.UTC()}
	err := k.change(func(list []record) ([]record, error) {
		var next []record
		old := 0
		for _, r := range slices.Backward(list) { // the newest first
			if later, ok := errors.AsType[*format.LaterError](format.Key.Check(r.later)); ok {
				return nil, &unreadError{later} // it may be a full one
			}
			if r.isFull() {
				if r.Expires.IsZero() {
					r.Expires = now.Add(grace).UTC()
				}
				if old++; grace == 0 || old > maxOld {
					continue
				}
			}
			next = append(next, r)
		}
		slices.Reverse(next)
		return append(next, made), nil
	})
	g := made.grant()
	g.ID = made.Verifier.id()
	return g, err
}

// addShared is Add for a cluster.
func (k *Keyring) addShared(g Grant) (Key, Grant, error) {
	key := Generate()
	g.Created, g.ID = time.Now(), key.ID()
	err := k.change(func(list []record) ([]record, error) {
		if scopedIn(list) >= MaxScoped {
			return nil, ErrTooMany
		}
		return append(list, record{Verifier: key.verifier(), Scope: g.Scope, Name: g.Name, AgentID: g.AgentID, MayGrant: g.MayGrant, Created: g.Created.UTC(), Expires: g.Expires.UTC()}), nil
	})
	if err != nil {
		return Key{}, Grant{}, err
	}
	return key, g, nil
}

// errNone says that there is no such key.
var errNone = errors.New("there is no such key")

// revokeShared is Revoke for a cluster.
func (k *Keyring) revokeShared(id string) (bool, error) {
	err := k.change(func(list []record) ([]record, error) {
		next := slices.DeleteFunc(slices.Clone(list), func(r record) bool { return !r.isFull() && r.Verifier.id() == id })
		if len(next) == len(list) {
			return nil, errNone
		}
		return next, nil
	})
	if errors.Is(err, errNone) {
		return false, nil
	}
	return err == nil, err
}
