package bare_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/bare"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/engine"
)

func TestMain(m *testing.M) { clustertest.Verify(m) }

// A message goes to another machine and back, and one is kept by a majority; without one it is not.
func TestBare(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	join := clustertest.Addresses(t, 2)
	var links []*cluster.Link
	var engines []*engine.Engine
	for i, listen := range join {
		e, err := engine.Start(engine.Options{Name: "farm", Machine: string(rune('a' + i)), Listen: listen, Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats")})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		link, err := cluster.Connect(e, "", zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		defer link.Close()
		links, engines = append(links, link), append(engines, e)
	}
	b, err := bare.Open(ctx, links)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := b.Request(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(ctx, i%len(links)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	engines[0].Close()
	short, cancelShort := context.WithTimeout(ctx, time.Second)
	defer cancelShort()
	if b.Publish(short, 0) == nil {
		t.Error("a message is kept without a majority")
	}
}
