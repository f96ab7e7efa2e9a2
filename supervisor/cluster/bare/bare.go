// Package bare does with the servers of NATS of a cluster what any program could, and nothing of nexus: it is the floor beside which the bench puts what a
// cluster costs.
//
//	b, err := bare.Open(ctx, links) // one for each machine
//	defer b.Close()
//	err = b.Request(ctx) // from the second machine to the first one and back
//	err = b.Publish(ctx, 0) // until a majority of the machines has it on its disk
//
// Its methods are called by one goroutine.
package bare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster"
)

const (
	echo   = "bare.echo"
	stream = "bare"
	kept   = "bare.kept"
	// size is how many bytes a message has, about as many as a short turn adds to the files of an agent.
	size = 1 << 10
	// keptBytes bounds the stream, which loses what is oldest.
	keptBytes = 16 << 20
	pause     = 100 * time.Millisecond
	patience  = 2 * time.Second // for one question, which nobody answers before the machines have elected who leads
)

// Cluster is a stream on all machines, and an echo at the first one.
type Cluster struct {
	far, near *nats.Conn
	js        []jetstream.JetStream // one for each machine
	echoing   *nats.Subscription
}

// Open begins; it waits for a majority of the machines, of which there are at least two. The links stay their owner's.
func Open(ctx context.Context, links []*cluster.Link) (*Cluster, error) {
	b := &Cluster{far: links[0].NATS(), near: links[1].NATS()}
	var err error
	for _, l := range links {
		js, err := jetstream.New(l.NATS())
		if err != nil {
			return nil, fmt.Errorf("a bare cluster: %w", err)
		}
		b.js = append(b.js, js)
	}
	config := jetstream.StreamConfig{Name: stream, Subjects: []string{kept}, Replicas: min(len(links), 3), Storage: jetstream.FileStorage, MaxBytes: keptBytes}
	for {
		asked, cancel := context.WithTimeout(ctx, patience)
		_, err = b.js[0].CreateOrUpdateStream(asked, config)
		cancel()
		if err == nil {
			break
		}
		if ratelimit.Sleep(ctx, pause) != nil {
			return nil, fmt.Errorf("a bare cluster: %w", err)
		}
	}
	if b.echoing, err = b.far.Subscribe(echo, func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return nil, fmt.Errorf("a bare cluster: %w", err)
	}
	for b.Request(ctx) != nil { // the other machine hears of the subscription a moment later
		if err := ratelimit.Sleep(ctx, pause); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// Close ends the echo. The stream stays.
func (b *Cluster) Close() error { return b.echoing.Unsubscribe() }

var message = bytes.Repeat([]byte("x"), size)

// Request sends a message from one machine to another, and waits until it is back.
func (b *Cluster) Request(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := b.near.RequestWithContext(ctx, echo, message)
	return err
}

// Publish has the machines keep a message of one of them, by its place among the links, and waits until a majority has it on its disk. The one that leads the others has a
// way less.
func (b *Cluster) Publish(ctx context.Context, machine int) error {
	_, err := b.js[machine].Publish(ctx, kept, message)
	return err
}
