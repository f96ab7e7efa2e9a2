package register_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/register"
)

func TestMain(m *testing.M) { clustertest.Verify(m) }

// patience bounds what machines do on a busy one.
const patience = time.Minute

func open(t *testing.T, m *clustertest.Machine) *register.Register {
	t.Helper()
	r, err := register.Open(m.NATS(), register.Options{Cluster: "farm", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// until waits until so, which is asked again at each change.
func until(t *testing.T, r *register.Register, what string, so func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for changed := r.Changed(); !so(); changed = r.Changed() {
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// has says that a machine knows the value.
func has(r *register.Register, name, want string) func() bool {
	return func() bool { text, _, known := r.Get(name); return known && string(text) == want }
}

// told is what one machine has heard of others, and knows.
type told struct {
	heard chan string
	knows string
}

func (l told) Heard(text []byte) { l.heard <- string(text) }

func (l told) Answer(question []byte) []byte {
	if string(question) != l.knows {
		return nil
	}
	return []byte("the answer to " + l.knows)
}

// Each machine has what one has put; of several that change a revision one succeeds; a text is used once. Without a majority nothing changes, and what
// was known stays known.
func TestRegister(t *testing.T) {
	t.Parallel()
	machines := clustertest.Start(t, 3)
	var all []*register.Register
	for _, m := range machines {
		all = append(all, open(t, m))
	}
	for _, r := range all {
		until(t, r, "there is no value", has(r, "keys", ""))
	}
	first, err := all[0].Put(t.Context(), "keys", []byte("one"), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		until(t, r, "all know the value", has(r, "keys", "one"))
	}
	if text, _, _ := all[1].Get("other"); text != nil {
		t.Errorf("another value is %s", text)
	}
	var won, used int
	var mu sync.Mutex
	var contending sync.WaitGroup
	for _, r := range all {
		contending.Go(func() {
			_, err := r.Put(t.Context(), "keys", []byte("two"), first)
			errUsed := r.Use(t.Context(), []string{"signature+/="})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case !errors.Is(err, cluster.ErrChanged):
				t.Error(err)
			}
			switch {
			case errUsed == nil:
				used++
			case !errors.Is(errUsed, register.ErrUsed):
				t.Error(errUsed)
			}
		})
	}
	contending.Wait()
	if won != 1 || used != 1 {
		t.Errorf("%d machines have changed a revision, and %d have used a text", won, used)
	}

	listener := told{heard: make(chan string, 1), knows: "why"}
	for _, hear := range []func() (func(), error){
		func() (func(), error) { return all[0].Hear("rates", told{heard: nil}) }, // which would block if it heard itself
		func() (func(), error) { return all[1].Hear("rates", listener) },
		func() (func(), error) { return all[1].Answer("key", listener) },
		func() (func(), error) { return all[0].Answer("key", told{knows: "nothing"}) },
	} {
		end, err := hear()
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for heard := ""; heard == ""; { // that b listens a may know a moment later
		if err := all[0].Tell("rates", []byte("used")); err != nil {
			t.Fatal(err)
		}
		select {
		case heard = <-listener.heard:
		case <-time.After(100 * time.Millisecond):
		}
		if ctx.Err() != nil {
			t.Fatal("it was not heard")
		}
	}
	var answer []byte
	for answer == nil {
		asked, end := context.WithTimeout(ctx, time.Second)
		answer, err = all[0].Ask(asked, "key", []byte("why"))
		end()
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if string(answer) != "the answer to why" {
		t.Errorf("the answer is %s", answer)
	}

	all[1].Close()
	all[2].Close()
	machines[1].Stop()
	machines[2].Stop()
	_, revision, _ := all[0].Get("keys")
	if _, err := all[0].Put(t.Context(), "keys", []byte("three"), revision); !errors.Is(err, cluster.ErrNoQuorum) {
		t.Errorf("a change without a majority: %v", err)
	}
	if err := all[0].Use(t.Context(), []string{"another"}); !errors.Is(err, cluster.ErrNoQuorum) {
		t.Errorf("a use without a majority: %v", err)
	}
	if !has(all[0], "keys", "two")() {
		t.Error("what was known is not known any more")
	}
}

// What is used and held for the first time while a machine is lost is kept all the same.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	machines := clustertest.Start(t, 3)
	var all []*register.Register
	for _, m := range machines {
		all = append(all, open(t, m))
	}
	for _, r := range all {
		until(t, r, "there is no value", has(r, "keys", ""))
	}
	for _, bucket := range []string{"nexus_farm_used", "nexus_farm_held"} {
		eventually(t, bucket+" is made", func() bool {
			_, err := machines[0].JetStream.KeyValue(t.Context(), bucket)
			return err == nil
		})
	}
	all[0].Close()
	machines[0].Stop()
	eventually(t, "a name is held", func() bool {
		got, err := all[1].Take(t.Context(), "plan/one", "b")
		return got == "b" && err == nil
	})
	eventually(t, "a text is used", func() bool {
		err := all[2].Use(t.Context(), []string{"x"})
		return err == nil || errors.Is(err, register.ErrUsed) // by a try that was not answered
	})
}

// eventually waits until so, as the machine that is asked may know a moment later.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A name has one holder in the whole cluster, until that one gives it up.
func TestHeld(t *testing.T) {
	t.Parallel()
	machines := clustertest.Start(t, 3)
	var all []*register.Register
	for _, m := range machines {
		all = append(all, open(t, m))
	}
	for _, r := range all {
		until(t, r, "there is no value", has(r, "keys", ""))
	}
	holders := make([]string, len(all))
	var contending sync.WaitGroup
	for i, r := range all {
		contending.Go(func() {
			var err error
			if holders[i], err = r.Take(t.Context(), "plan/ä b", string(rune('a'+i))); err != nil {
				t.Error(err)
			}
		})
	}
	contending.Wait()
	holder := holders[0]
	for i, r := range all {
		if holders[i] != holder || holder == "" {
			t.Errorf("machine %d has taken it for %q, the first one for %q", i, holders[i], holder)
		}
		eventually(t, "all find who holds it", func() bool {
			got, err := r.Holder(t.Context(), "plan/ä b")
			return got == holder && err == nil
		})
	}
	if err := all[0].Drop(t.Context(), "plan/ä b", "another"); err != nil {
		t.Error(err)
	}
	if got, err := all[1].Take(t.Context(), "plan/ä b", "later"); got != holder || err != nil {
		t.Errorf("after another one gave it up: %q, %v", got, err)
	}
	eventually(t, "it is given up, and another one has it", func() bool {
		if err := all[0].Drop(t.Context(), "plan/ä b", holder); err != nil {
			t.Error(err)
		}
		got, err := all[1].Take(t.Context(), "plan/ä b", "later")
		return got == "later" && err == nil
	})
	eventually(t, "all find the other one", func() bool {
		got, err := all[2].Holder(t.Context(), "plan/ä b")
		return got == "later" && err == nil
	})
	for i := range 2 {
		all[i].Close()
		machines[i].Stop()
	}
	if _, err := all[2].Take(t.Context(), "other", "x"); !errors.Is(err, cluster.ErrNoQuorum) {
		t.Errorf("without a majority: %v", err)
	}
}
