package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Bounds of a Keyring (SPEC §7).
const (
	MaxScoped  = 256     // scoped keys that are kept
	maxOld     = 8       // full keys that are good for a while yet; the oldest goes
	MaxRecords = 1 << 20 // bytes of the file of scoped keys
)

// retryPause is between attempts to write files that could not be written.
const retryPause = time.Second

// Scope says what a key is good for.
type Scope string

const (
	ScopeFull  Scope = "full"  // everything
	ScopeRead  Scope = "read"  // what changes nothing
	ScopeAgent Scope = "agent" // one agent and its events
)

// Grant is a key that a server takes, without the key.
type Grant struct {
	// ID names the key (Key.ID).
	ID    string
	Scope Scope
	// Name is what its maker called it; "" if nothing.
	Name string
	// AgentID is the agent of ScopeAgent, else "".
	AgentID string
	// MayGrant says that a key of ScopeAgent may do more than narrow what the agent
	// may do: up to what its owner granted.
	MayGrant bool
	Created  time.Time
	// Expires is when it ends; zero for never.
	Expires time.Time
}

// Replaced reports whether it is a full key that rotate_key has replaced, and that is in its
// grace: no other full key has an end.
func (g Grant) Replaced() bool { return g.Scope == ScopeFull && !g.Expires.IsZero() }

// entry is a key of a Keyring.
type entry struct {
	Grant
	key      Key // zero for a scoped key: that is not kept
	verifier verifier
	// valid ends when the key does.
	valid context.Context //nolint:containedctx // its life is the key's and no call's
	end   context.CancelFunc
	// close ends the key with its server: valid has the cause ErrClosed.
	close func()
}

// ErrClosed is the cause with which the contexts of keys end that end with their Keyring:
// nobody took them back.
var ErrClosed = errors.New("the server of the key ends")

func newEntry(g Grant, key Key, v verifier) *entry {
	h := &entry{Grant: g, key: key, verifier: v}
	h.ID = v.id()
	life, end := context.WithCancelCause(context.Background())
	if g.Expires.IsZero() {
		h.valid, h.end = context.WithCancel(life)
	} else {
		h.valid, h.end = context.WithDeadline(life, g.Expires)
	}
	h.close = func() { end(ErrClosed); h.end() }
	return h
}

// Keyring is the keys that a server takes: its full key, those that it has
// replaced and that are good for a while yet, and the scoped ones. It is safe
// for concurrent use, and must be closed. What cannot be written has a goroutine that
// writes it later; Close joins it.
type Keyring struct {
	path    string // of the full key's file
	records string // path of the file of scoped keys

	mu      sync.Mutex // guards what follows, and the files
	full    *entry
	inFile  Key         // what the full key's file holds; another than the full key if that could not be written
	old     []*entry    // the oldest first
	scoped  []*entry    // in the order of their creation
	unsaved []string    // ids of revoked keys that records still holds
	retry   *time.Timer // writes the files again; nil if it is not set
	closed  bool
	shared  *shared        // what the machines of a cluster have together; nil for a server alone
	saving  sync.WaitGroup // retry
}

// UnsavedError says that keys have ended, and that a file does not hold that yet. The
// keyring writes it as soon as it can, until Close.
type UnsavedError struct {
	Holds string // what holds already, and what does not
	Err   error
}

func (e *UnsavedError) Error() string { return e.Holds + ": " + e.Err.Error() }

func (e *UnsavedError) Unwrap() error { return e.Err }

// OpenKeyring makes a new full key at path (as Create does) and reads the scoped
// keys at records, which may not be there. It refuses records that others
// could have written, or that it cannot understand. The caller holds the home, which
// has one server: key files of other ports are removed. They are of servers that
// were killed or, in a copy of a home, of a server of another home that may live.
func OpenKeyring(path, records string) (*Keyring, error) {
	k := &Keyring{path: path, records: records}
	if err := k.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the scoped keys %s: %w", records, err), k.Close())
	}
	key, err := Create(path)
	if err == nil {
		err = removeOthers(path)
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	k.full, k.inFile = newEntry(Grant{Scope: ScopeFull, Created: time.Now()}, key, key.verifier()), key
	return k, nil
}

// Close ends all keys of this server, with the cause ErrClosed, and removes the full key's file, if it is
// still its own. Scoped keys are good again for the next server, but for those that
// were revoked: if that cannot be saved even now, the error says so.
func (k *Keyring) Close() error {
	err := k.end()
	k.saving.Wait()
	return err
}

func (k *Keyring) end() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.retry != nil && k.retry.Stop() {
		k.saving.Done()
	}
	var err error
	if len(k.unsaved) > 0 {
		err = k.save(k.living())
	}
	for _, h := range slices.Concat(k.old, k.scoped, k.shared.own()) {
		h.close()
	}
	if k.full == nil {
		return err
	}
	k.full.close()
	return errors.Join(err, Remove(k.path, k.inFile))
}

// later writes again, after a pause, what could not be written. mu is held.
func (k *Keyring) later() {
	if k.retry == nil && !k.closed {
		k.saving.Add(1)
		k.retry = time.AfterFunc(retryPause, k.writeAgain)
	}
}

func (k *Keyring) writeAgain() {
	defer k.saving.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.retry = nil; k.closed {
		return
	}
	var err error
	if len(k.unsaved) > 0 {
		err = k.save(k.living())
	}
	if k.stands() {
		err = errors.Join(err, k.write())
	}
	if err != nil {
		k.later()
	}
}

// stands reports whether a file has another key than the full one, which is known. mu is held.
func (k *Keyring) stands() bool {
	return !k.full.key.IsZero() && (k.inFile != k.full.key || k.shared.lacks(k.full.verifier))
}

// write puts the full key into its file. mu is held.
func (k *Keyring) write() error {
	err := errors.Join(k.full.key.write(k.path), k.shared.keep(k.full.key))
	if err == nil {
		k.inFile = k.full.key
	}
	return err
}

// Key is the full key: on a machine of a cluster, the one that it made at its start until that of the cluster is known.
func (k *Keyring) Key() Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	if own := k.shared.own(); k.full.key.IsZero() && own != nil {
		return own[0].key
	}
	return k.full.key
}

// FullKey is the full key of that id, unless it was replaced; the zero Key if there is none, or its text is not known here.
func (k *Keyring) FullKey(id string) Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range append(k.shared.own(), k.full) {
		if h.ID == id && h.Expires.IsZero() && h.valid.Err() == nil {
			return h.key
		}
	}
	return Key{}
}

// Path is the file that holds the full key.
func (k *Keyring) Path() string { return k.path }

// all are the keys that are good now. mu is held.
func (k *Keyring) all() []*entry {
	keys := slices.Concat([]*entry{k.full}, k.shared.own(), k.old, k.scoped)
	return slices.DeleteFunc(keys, func(h *entry) bool { return h.valid.Err() != nil })
}

// Check says what presented is good for. valid ends when the key does: by
// Rotate, Revoke, its time or Close.
func (k *Keyring) Check(presented string) (g Grant, valid context.Context, ok bool) {
	v := Key{text: presented}.verifier() // its time says nothing about a key
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.all() {
		if subtle.ConstantTimeCompare([]byte(h.verifier), []byte(v)) == 1 {
			return h.Grant, h.valid, true
		}
	}
	return Grant{}, nil, false
}

// CheckSignature finds the full key that made a signature of text; valid is as of Check.
func (k *Keyring) CheckSignature(text, signature string) (g Grant, valid context.Context, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.all() {
		if h.key.Signed(text, signature) {
			return h.Grant, h.valid, true
		}
	}
	return Grant{}, nil, false
}

// Prove answers a challenge (Key.Prove) for the key of that id, "" for the full
// one. ok is false if there is no such key.
func (k *Keyring) Prove(id, nonce, address string) (proof string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.all() { // the full one is the first
		if h.ID == id || id == "" {
			return h.verifier.prove(nonce, address), true
		}
	}
	return "", false
}

// Rotate puts a new full key into the file. The one before it is good for the
// grace; with a grace of 0, no other full key is good any more. That holds also if
// the file cannot be written: the error is an UnsavedError then.
func (k *Keyring) Rotate(grace time.Duration) (now Grant, err error) {
	if k.shared != nil {
		return k.rotateShared(grace)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key, before := Generate(), k.full
	k.full = newEntry(Grant{Scope: ScopeFull, Created: time.Now()}, key, key.verifier())
	k.old = slices.DeleteFunc(k.old, func(h *entry) bool { return h.valid.Err() != nil })
	if grace > 0 {
		k.old = append(k.old, before.until(time.Now().Add(grace)))
	} else {
		for _, h := range append(k.old, before) {
			h.end()
		}
		k.old = nil
	}
	if len(k.old) > maxOld {
		k.old[0].end()
		k.old = k.old[1:]
	}
	return k.full.Grant, k.writeOrLater()
}

// writeOrLater puts the full key into its file, now or as soon as that is possible. mu is held.
func (k *Keyring) writeOrLater() error {
	err := k.write()
	if err == nil {
		return nil
	}
	k.later()
	return &UnsavedError{"the old key has ended, or ends after grace_s, but the new one is not in its file yet", err}
}

// until is the key with an end, in the place of the entry. What is under way with it goes on until then.
func (h *entry) until(end time.Time) *entry {
	g := h.Grant
	g.Expires = end
	again := newEntry(g, h.key, h.verifier)
	context.AfterFunc(again.valid, func() {
		if errors.Is(context.Cause(again.valid), ErrClosed) {
			h.close()
		} else {
			h.end()
		}
	})
	return again
}

// ErrTooMany says that there are MaxScoped keys already.
var ErrTooMany = fmt.Errorf("there are %d scoped keys: revoke one first", MaxScoped)

// Add makes a scoped key; of g, ID and Created are chosen. The key is shown
// here and never again: only its hash is kept.
func (k *Keyring) Add(g Grant) (Key, Grant, error) {
	if k.shared != nil {
		return k.addShared(g)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := k.living()
	if len(kept) >= MaxScoped {
		return Key{}, Grant{}, ErrTooMany
	}
	key := Generate()
	g.Created = time.Now()
	h := newEntry(g, Key{}, key.verifier())
	if err := k.save(append(kept, h)); err != nil {
		h.end()
		return Key{}, Grant{}, err
	}
	return key, h.Grant, nil
}

// List are the scoped keys that are good now, the oldest first.
func (k *Keyring) List() []Grant {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Grant
	for _, h := range k.living() {
		out = append(out, h.Grant)
	}
	return out
}

// Revoke ends the scoped key of that id and reports whether there was one. It has
// ended also if that cannot be saved: the error is an UnsavedError then.
func (k *Keyring) Revoke(id string) (bool, error) {
	if k.shared != nil {
		return k.revokeShared(id)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := k.living()
	i := slices.IndexFunc(kept, func(h *entry) bool { return h.ID == id })
	switch {
	case i >= 0:
		kept[i].end()
		k.scoped, k.unsaved = slices.Delete(kept, i, i+1), append(k.unsaved, id)
	case !slices.Contains(k.unsaved, id):
		return false, nil
	}
	if err := k.save(k.living()); err != nil {
		k.later()
		return true, &UnsavedError{"the key has ended, but its file has it yet: if the server is killed before that can be written, the next one takes the key", err}
	}
	return true, nil
}

// living are the scoped keys that have not expired, in a slice of their own. mu
// is held.
func (k *Keyring) living() []*entry {
	return slices.DeleteFunc(slices.Clone(k.scoped), func(h *entry) bool { return h.valid.Err() != nil })
}
