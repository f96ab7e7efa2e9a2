package register

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// Listener hears what other machines tell, one thing after the other.
type Listener interface{ Heard(text []byte) }

// Answerer answers what other machines ask; nil if it does not know. It is asked one thing after the other.
type Answerer interface{ Answer(question []byte) []byte }

func (r *Register) subject(kind, topic string) string {
	return "nexus." + r.o.Cluster + "." + kind + "." + topic
}

// Tell tells the other machines something. What is lost on the way is not told again.
func (r *Register) Tell(topic string, text []byte) error {
	return r.nc.Publish(r.subject("told", topic)+"."+r.process, text)
}

// Hear has l hear what other machines tell, until end is called.
func (r *Register) Hear(topic string, l Listener) (end func(), err error) {
	return r.subscribe(r.subject("told", topic)+".*", func(m *nats.Msg) {
		if !strings.HasSuffix(m.Subject, "."+r.process) {
			l.Heard(m.Data)
		}
	})
}

// Ask is the first answer to a question that is asked of all machines. Where none knows it, ctx ends that, or its error says that nobody is there.
func (r *Register) Ask(ctx context.Context, topic string, question []byte) (answer []byte, err error) {
	m, err := r.nc.RequestWithContext(ctx, r.subject("asked", topic), question)
	if err != nil {
		return nil, fmt.Errorf("ask the machines: %w", err)
	}
	return m.Data, nil
}

// Answer has a answer what other machines, or this one, ask, until end is called.
func (r *Register) Answer(topic string, a Answerer) (end func(), err error) {
	return r.subscribe(r.subject("asked", topic), func(m *nats.Msg) {
		if answer := a.Answer(m.Data); answer != nil {
			_ = m.Respond(answer) // or it is asked again
		}
	})
}

func (r *Register) subscribe(subject string, do nats.MsgHandler) (end func(), err error) {
	s, err := r.nc.Subscribe(subject, do)
	if err != nil {
		return nil, fmt.Errorf("hear the other machines: %w", err)
	}
	return func() { _ = s.Unsubscribe() }, nil
}
