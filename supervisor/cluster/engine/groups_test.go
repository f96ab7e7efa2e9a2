package engine

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// A group stands still that has something to do and does not move while the machines agree on who keeps what; each machine waits longer than the one before. One that has
// nothing to do, moves, or is cut off with all others does not.
func TestGroupsThatStandStill(t *testing.T) {
	peers := map[string]server.RaftzGroupPeer{"A": {Name: "a", Known: true}, "C": {Name: "c", Known: true}, "?": {Name: "0"}}
	meta := server.RaftzGroup{Leader: "A"}
	idle := server.RaftzGroup{Leader: "A", PIndex: 7, Committed: 7, Applied: 7, Peers: peers}
	with := func(change func(*server.RaftzGroup)) server.RaftzGroup {
		g := idle
		change(&g)
		return g
	}
	began := time.Now()
	for name, tt := range map[string]struct {
		at   func(second int) (g, meta server.RaftzGroup)
		want map[string]int // after how many seconds, by machine; 0 is never
	}{
		"idle": {func(int) (server.RaftzGroup, server.RaftzGroup) { return idle, meta }, map[string]int{"b": 0}},
		"leaderless": {func(int) (server.RaftzGroup, server.RaftzGroup) {
			return with(func(g *server.RaftzGroup) { g.Leader = "" }), meta
		}, map[string]int{"a": 45, "b": 65, "c": 65, "d": 85}},
		"elects anew and anew": {func(second int) (server.RaftzGroup, server.RaftzGroup) {
			return with(func(g *server.RaftzGroup) { g.Leader, g.Term = "", uint64(second) }), meta
		}, map[string]int{"a": 45}},
		"agrees on nothing more": {func(second int) (server.RaftzGroup, server.RaftzGroup) {
			return with(func(g *server.RaftzGroup) { g.PIndex += uint64(second) }), meta
		}, map[string]int{"a": 45}},
		"applies nothing more": {func(int) (server.RaftzGroup, server.RaftzGroup) {
			return with(func(g *server.RaftzGroup) { g.Applied-- }), meta
		}, map[string]int{"a": 45}},
		"catches up": {func(second int) (server.RaftzGroup, server.RaftzGroup) {
			return with(func(g *server.RaftzGroup) { g.PIndex, g.Committed = 1000, 8+uint64(second) }), meta
		}, map[string]int{"a": 0}},
		"cut off": {func(int) (server.RaftzGroup, server.RaftzGroup) {
			return with(func(g *server.RaftzGroup) { g.Leader = "" }), server.RaftzGroup{}
		}, map[string]int{"a": 0}},
		"back since": {func(second int) (server.RaftzGroup, server.RaftzGroup) {
			g := with(func(g *server.RaftzGroup) { g.Leader = "" })
			if second < 100 {
				return g, server.RaftzGroup{}
			}
			return g, meta
		}, map[string]int{"a": 140}},
	} {
		for machine, want := range tt.want {
			w, got := watch{log: zap.NewNop(), still: map[string]stillness{}}, 0
			for second := 0; second <= 300 && got == 0; second += 5 {
				g, meta := tt.at(second)
				if w.stands("files", map[string]server.RaftzGroup{"files": g, metaGroup: meta}, machine, began.Add(time.Duration(second)*time.Second)) {
					got = second
				}
			}
			if got != want {
				t.Errorf("%s, at the machine %s: after %d s, want %d", name, machine, got, want)
			}
		}
	}
}

// What machines agree on is soon agreed on and applied by all: no group has anything to do then, whatever it is for.
func TestIdleGroups(t *testing.T) {
	var join []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		join = append(join, l.Addr().String())
		l.Close()
	}
	var all []*Engine
	for i, listen := range join {
		e, err := Start(Options{Name: "farm", Machine: string(rune('a' + i)), Listen: listen, Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats")})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		all = append(all, e)
	}
	nc, err := nats.Connect("", nats.InProcessServer(all[0].server), nats.Token(all[0].secret))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; {
		_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "files", Subjects: []string{"f.*"}, Replicas: 3})
		if err == nil {
			_, err = js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "lists", Replicas: 3, Storage: jetstream.MemoryStorage})
		}
		if err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		if _, err := js.Publish(t.Context(), fmt.Sprint("f.", i%3), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for began, quiet := time.Now(), 0; quiet < 40; {
		<-every.C
		quiet++
		for _, e := range all {
			groups := groupsOf(e.server)
			if len(groups) != 3 {
				quiet = 0
			}
			for name, g := range groups {
				if owes(g) {
					quiet = 0
				}
				if owes(g) && time.Since(began) > time.Minute {
					t.Fatalf("%s of %v owes something: %+v", name, slices.Sorted(maps.Keys(groups)), g)
				}
			}
		}
	}
}
