package auth_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/format"
)

// together is what the machines of a cluster keep, in memory.
type together struct {
	mu       sync.Mutex // guards what follows
	text     []byte
	revision uint64
	known    bool
	cut      bool // no majority is reached
	changed  chan struct{}
	answer   []auth.Answerer
	later    *format.Later
}

func newTogether() *together {
	return &together{known: true, later: format.NewLater(nil), changed: make(chan struct{})}
}

func (c *together) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *together) Get() ([]byte, uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text, c.revision, c.known
}

func (c *together) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *together) Put(_ context.Context, text []byte, after uint64) (revision uint64, err error) {
	c.set(func() {
		switch {
		case c.cut:
			err = auth.ErrNoMajority
		case after != c.revision:
			err = auth.ErrChanged
		default:
			c.revision++
			c.text, revision = text, c.revision
		}
	})
	return revision, err
}

func (c *together) Ask(_ context.Context, question string) (string, error) {
	c.mu.Lock()
	all := c.answer
	c.mu.Unlock()
	for _, a := range all {
		if answer := a.Answer(question); answer != "" {
			return answer, nil
		}
	}
	return "", errors.New("nobody knows")
}

func (c *together) Answer(a auth.Answerer) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = append(c.answer, a)
	return func() {}, nil
}

// ring is the keyring of a machine with a home.
type ring struct {
	*auth.Keyring
	home string
	own  auth.Key // that it has made at its start
}

// join opens the keys of the machine with that home, which follow the cluster's until the test ends.
func (c *together) join(t *testing.T, home string) *ring {
	t.Helper()
	path := auth.KeyPath(home, 1)
	k, err := auth.OpenShared(path, filepath.Join(home, "keys.json"), filepath.Join(home, "kept", "server.key"), c, c.later)
	if err != nil {
		t.Fatal(err)
	}
	own := k.Key()
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			_ = k.Follow(ctx) // it is tried again
			<-time.After(time.Second)
		}
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return &ring{k, home, own}
}

func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// good reports for what a key is good at a machine; "" for nothing.
func (r *ring) good(key auth.Key) auth.Scope {
	g, _, ok := r.Check(key.Reveal())
	if !ok {
		return ""
	}
	return g.Scope
}

// The machines of a cluster have one full key: the first one's, in the files of all. What one makes, revokes or replaces holds at all.
func TestShared(t *testing.T) {
	homes := []string{home(t), home(t)}
	synctest.Test(t, func(t *testing.T) {
		c := newTogether()
		a := c.join(t, homes[0])
		synctest.Wait()
		b := c.join(t, homes[1])
		<-time.After(5 * time.Second)
		full := a.own
		for _, r := range []*ring{a, b} {
			inFile, err := auth.Read(auth.KeyPath(r.home, 1))
			if err != nil || inFile.Reveal() != full.Reveal() || r.Key().Reveal() != full.Reveal() || r.good(full) != auth.ScopeFull {
				t.Errorf("a file has another full key: %v", err)
			}
			if proof, ok := r.Prove("", "0123456789abcdef", "127.0.0.1:1"); !ok || !full.Proves("0123456789abcdef", "127.0.0.1:1", proof) {
				t.Error("a machine does not prove that it has the full key")
			}
			if _, _, ok := r.CheckSignature("text", full.Sign("text")); !ok {
				t.Error("what the full key signs is not good")
			}
			if r.good(r.own) != auth.ScopeFull {
				t.Error("the key that a server has made at its start is not good there")
			}
		}
		if a.good(b.own) != "" {
			t.Error("the key of a server's start is good elsewhere")
		}
		if bytes.Contains(c.text, []byte(full.Reveal())) {
			t.Error("the machines keep the full key itself")
		}
		read, made, err := b.Add(auth.Grant{Scope: auth.ScopeRead, Name: "dashboard"})
		if err != nil {
			t.Fatal(err)
		}
		short, _, err := a.Add(auth.Grant{Scope: auth.ScopeAgent, AgentID: "x", Expires: time.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var lives []context.Context
		for _, r := range []*ring{a, b} {
			if r.good(read) != auth.ScopeRead || r.good(short) != auth.ScopeAgent || len(r.List()) != 2 || r.List()[0].Name != "dashboard" {
				t.Errorf("a machine knows %+v", r.List())
			}
			_, valid, _ := r.Check(read.Reveal())
			lives = append(lives, valid)
		}
		<-time.After(2 * time.Minute)
		if a.good(short) != "" || b.good(short) != "" || lives[1].Err() != nil {
			t.Error("a key goes on after its end, or ends before it")
		}
		if ok, err := a.Revoke(made.ID); !ok || err != nil {
			t.Error(ok, err)
		}
		synctest.Wait()
		if b.good(read) != "" || lives[0].Err() == nil || lives[1].Err() == nil {
			t.Error("a revoked key goes on")
		}
		if ok, err := b.Revoke(made.ID); ok || err != nil {
			t.Error(ok, err)
		}

		if _, err := b.Rotate(time.Minute); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		next := b.Key()
		if next.Reveal() == full.Reveal() || a.Key().Reveal() != next.Reveal() || a.good(full) != auth.ScopeFull || b.good(b.own) != auth.ScopeFull {
			t.Error("a full key that was replaced ends before its grace, or a machine does not have the new one")
		}
		if !a.FullKey(full.ID()).IsZero() || a.FullKey(next.ID()).IsZero() {
			t.Error("who has a full key that was replaced gets the new one")
		}
		<-time.After(2 * time.Minute)
		if a.good(full) != "" || b.good(b.own) != "" || a.good(next) != auth.ScopeFull {
			t.Error("after the grace the replaced keys are good, or the new one is not")
		}
		if _, err := a.Rotate(0); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		if b.good(next) != "" || b.good(a.Key()) != auth.ScopeFull {
			t.Error("a rotation without grace leaves the old key")
		}
	})
}

// Keys of the time in which a server was alone become the cluster's, once. A server that starts again has the full key of the cluster. Without a majority nothing
// changes, and before the keys are known none is called wrong.
func TestSharedAgain(t *testing.T) {
	first, second := home(t), home(t)
	alone, err := auth.OpenKeyring(auth.KeyPath(first, 1), filepath.Join(first, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	read, made, err := alone.Add(auth.Grant{Scope: auth.ScopeRead})
	if err == nil {
		err = alone.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := newTogether()
		c.known = false
		b := c.join(t, second)
		a := c.join(t, first)
		synctest.Wait()
		if a.good(read) != "" || a.Unknown() == nil || a.good(a.own) != auth.ScopeFull {
			t.Error("before the keys of the cluster are known")
		}
		if _, _, err := a.Add(auth.Grant{Scope: auth.ScopeRead}); !errors.Is(err, auth.ErrNoMajority) {
			t.Errorf("a key that is made then: %v", err)
		}
		c.set(func() { c.known = true })
		<-time.After(5 * time.Second)
		if a.good(read) != auth.ScopeRead || b.good(read) != auth.ScopeRead || a.Unknown() != nil {
			t.Error("a key of the time before is not the cluster's")
		}
		if text, err := os.ReadFile(filepath.Join(first, "keys.json")); err != nil || bytes.Contains(text, []byte("sha256")) {
			t.Errorf("the server alone has the key, too: %s, %v", text, err)
		}
		if ok, err := b.Revoke(made.ID); !ok || err != nil {
			t.Error(ok, err)
		}
		c.set(func() { c.cut = true })
		if _, _, err := b.Add(auth.Grant{Scope: auth.ScopeRead}); !errors.Is(err, auth.ErrNoMajority) {
			t.Errorf("without a majority: %v", err)
		}
		if _, err := b.Rotate(0); !errors.Is(err, auth.ErrNoMajority) || b.good(b.Key()) != auth.ScopeFull {
			t.Errorf("without a majority: %v", err)
		}
		c.set(func() { c.cut, c.answer = false, nil })
		full := a.Key()
		third := c.join(t, second) // its home has the full key
		<-time.After(5 * time.Second)
		if third.Key().Reveal() != full.Reveal() || third.good(full) != auth.ScopeFull || third.good(read) != "" {
			t.Error("a server that starts again has other keys")
		}
	})
}
