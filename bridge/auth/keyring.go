package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/strict"
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
	for _, h := range slices.Concat(k.old, k.scoped) {
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
	if k.inFile != k.full.key {
		err = errors.Join(err, k.write())
	}
	if err != nil {
		k.later()
	}
}

// write puts the full key into its file. mu is held.
func (k *Keyring) write() error {
	err := k.full.key.write(k.path)
	if err == nil {
		k.inFile = k.full.key
	}
	return err
}

// Key is the full key.
func (k *Keyring) Key() Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.full.key
}

// Path is the file that holds the full key.
func (k *Keyring) Path() string { return k.path }

// all are the keys that are good now. mu is held.
func (k *Keyring) all() []*entry {
	keys := slices.Concat([]*entry{k.full}, k.old, k.scoped)
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
	k.mu.Lock()
	defer k.mu.Unlock()
	key, before := Generate(), k.full
	k.full = newEntry(Grant{Scope: ScopeFull, Created: time.Now()}, key, key.verifier())
	k.old = slices.DeleteFunc(k.old, func(h *entry) bool { return h.valid.Err() != nil })
	if grace > 0 {
		g := before.Grant
		g.Expires = time.Now().Add(grace)
		again := newEntry(g, before.key, before.verifier)
		// What is under way with the old key goes on until then.
		context.AfterFunc(again.valid, func() {
			if errors.Is(context.Cause(again.valid), ErrClosed) {
				before.close()
			} else {
				before.end()
			}
		})
		k.old = append(k.old, again)
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
	if err := k.write(); err != nil {
		k.later()
		return k.full.Grant, &UnsavedError{"the old key has ended, or ends after grace_s, but the new one is not in its file yet", err}
	}
	return k.full.Grant, nil
}

// ErrTooMany says that there are MaxScoped keys already.
var ErrTooMany = fmt.Errorf("there are %d scoped keys: revoke one first", MaxScoped)

// Add makes a scoped key; of g, ID and Created are chosen. The key is shown
// here and never again: only its hash is kept.
func (k *Keyring) Add(g Grant) (Key, Grant, error) {
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

// record is a scoped key in its file.
type record struct {
	Verifier verifier  `json:"sha256"`
	Scope    Scope     `json:"scope"`
	Name     string    `json:"name,omitzero"`
	AgentID  string    `json:"agent_id,omitzero"`
	MayGrant bool      `json:"may_grant,omitzero"`
	Created  time.Time `json:"created_at"`
	Expires  time.Time `json:"expires_at,omitzero"`
}

// save writes the keys and then takes them for its own. mu is held.
func (k *Keyring) save(keys []*entry) error {
	records := []record{}
	for _, h := range keys {
		records = append(records, record{h.verifier, h.Scope, h.Name, h.AgentID, h.MayGrant, h.Created.UTC(), h.Expires.UTC()})
	}
	text, err := json.Marshal(map[string]any{"keys": records}, jsontext.WithIndent("  "))
	if err == nil {
		err = replace(k.records, string(text)+"\n")
	}
	if err != nil {
		return fmt.Errorf("write the scoped keys %s: %w", k.records, err)
	}
	k.scoped, k.unsaved = keys, nil
	return nil
}

func (k *Keyring) load() error {
	text, err := readOwn(k.records, ownersAlone, MaxRecords)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var file struct {
		Keys []record `json:"keys"`
	}
	if err := strict.Valid(text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &file, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	for i, r := range file.Keys {
		if len(r.Verifier) != 64 || r.Scope != ScopeRead && (r.Scope != ScopeAgent || r.AgentID == "") || r.MayGrant && r.Scope != ScopeAgent {
			return fmt.Errorf("keys[%d] is no scoped key", i)
		}
		k.scoped = append(k.scoped, newEntry(Grant{
			Scope: r.Scope, Name: r.Name, AgentID: r.AgentID, MayGrant: r.MayGrant, Created: r.Created, Expires: r.Expires,
		}, Key{}, r.Verifier))
	}
	return nil
}
