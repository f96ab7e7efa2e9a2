package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/ratelimit"
)

// Claim says whose an agent is.
type Claim struct {
	Machine string `json:"machine"`
	// Epoch grows with each owner, and with nothing else: what an owner of an earlier one says is void.
	Epoch uint64 `json:"-"`
}

// Unreadable stands for the machine of a claim that has a later format than this program reads, and of one that is damaged, as if that machine had claimed the
// agent: it is none of the cluster's, as its name says, and never gone.
const Unreadable = "_unknown"

// ErrClaimed says that another machine has an agent, or has had it since.
var ErrClaimed = errors.New("another machine has the agent")

// releasedTries is how often an agent is claimed of which nobody else is known to have claimed it meanwhile: that it was given up, this
// machine and the one of the three that is asked may know a moment later.
const releasedTries = 5

// key is an agent's name as one of JetStream's keys, which have fewer characters.
func key(agent string) string { return base64.RawURLEncoding.EncodeToString([]byte(agent)) }

// Owner is the claim on an agent as it is known here, which may be a moment old; false without one.
func (n *Node) Owner(agent string) (Claim, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.claims[agent]
	return c, ok
}

// Claim makes an agent this machine's: one that nobody has for the epoch 0, else that of the claim that this one
// follows. Of several machines that try, one succeeds; the others get [ErrClaimed]. After any other error it is
// not known whether it succeeded: Claim with the same epoch again says so.
func (n *Node) Claim(ctx context.Context, agent string, after uint64) (Claim, error) {
	c, err := n.claimFor(ctx, n.o.Machine, agent, after)
	if after != 0 && errors.Is(err, ErrClaimed) {
		if now, ok := succeeded(ctx, n, n.o.Machine, agent, after); ok {
			return now, nil
		}
	}
	return c, err
}

// Give makes an agent of this machine's, by the claim of the epoch after, that of another machine. [ErrClaimed] says that it was not this machine's any
// more. After any other error it is not known whose it is: Give with the same epoch again says so.
func (n *Node) Give(ctx context.Context, agent, to string, after uint64) error {
	_, err := n.claimFor(ctx, to, agent, after)
	if errors.Is(err, ErrClaimed) {
		if _, ok := succeeded(ctx, n, to, agent, after); ok {
			return nil
		}
	}
	return err
}

// succeeded is the claim of a machine on an agent that another one follows, perhaps by a try whose answer was lost; ok is false if the agent is
// another machine's, or that is not known.
func succeeded(ctx context.Context, n *Node, machine, agent string, after uint64) (c Claim, ok bool) {
	for range releasedTries { // the machine that is asked may know it a moment later
		c, err := n.ask(ctx, agent)
		if err != nil || c.Epoch > after {
			return c, err == nil && c.Machine == machine
		}
		if ratelimit.Sleep(ctx, retryEvery) != nil {
			break
		}
	}
	return c, false
}

// readClaim is the claim of an epoch. The error says why its machine is [Unreadable].
func readClaim(text []byte, epoch uint64) (c Claim, err error) {
	if err = format.Claim.Decode(text, &c); err == nil && !nameForm.MatchString(c.Machine) {
		err = errors.New("it names no machine")
	}
	if err != nil {
		c.Machine = Unreadable
	}
	c.Epoch = epoch
	return c, err
}

// mayFollow is [ErrClaimed] if the claim of an epoch cannot be read: then none follows it, and it is not given up.
func mayFollow(n *Node, agent string, epoch uint64) error {
	if c, ok := n.Owner(agent); ok && c == (Claim{Unreadable, epoch}) {
		return ErrClaimed
	}
	return nil
}

func (n *Node) claimFor(ctx context.Context, machine, agent string, after uint64) (Claim, error) {
	if err := mayFollow(n, agent, after); err != nil {
		return Claim{}, fmt.Errorf("claim %s: %w", agent, err)
	}
	c := Claim{Machine: machine}
	text, err := json.Marshal(c)
	if err != nil {
		return c, err
	}
	try := func(ctx context.Context, b jetstream.KeyValue) error {
		if after == 0 {
			c.Epoch, err = b.Create(ctx, key(agent), text)
		} else {
			c.Epoch, err = b.Update(ctx, key(agent), text, after)
		}
		return err
	}
	before, _ := n.Owner(agent) // it may have been given up since
	for range releasedTries {
		err = n.change(ctx, try)
		if now, owned := n.Owner(agent); after != 0 || owned && now != before || !errors.Is(err, ErrClaimed) || ratelimit.Sleep(ctx, retryEvery) != nil {
			break
		}
	}
	if err != nil {
		return Claim{}, fmt.Errorf("claim %s: %w", agent, err)
	}
	n.learn(agent, c)
	if text, err := json.Marshal(told{agent, c.Machine, c.Epoch}); err == nil {
		_ = n.nc.Publish(n.o.claims(), text) // or what follows the claims there has it later
	}
	return c, nil
}

// told is how a machine tells the others of a claim that it has got: what follows the claims there may have been served by the machine
// that is gone, and finds that out after ten seconds.
type told struct {
	Agent   string `json:"agent"`
	Machine string `json:"machine"`
	Epoch   uint64 `json:"epoch"`
}

func (n *Node) heardClaim(message *nats.Msg) {
	var t told
	err := n.o.Later.Note(format.ToldClaim.Decode(message.Data, &t))
	if _, later := errors.AsType[*format.LaterError](err); later {
		return // what follows the claims has it
	}
	if err != nil || !nameForm.MatchString(t.Machine) {
		n.log.Warn("a claim that none makes", zap.Int("bytes", len(message.Data)), zap.Error(err))
		return
	}
	n.learn(t.Agent, Claim{Machine: t.Machine, Epoch: t.Epoch})
}

// learn takes a claim that is told of before what follows the claims has it.
func (n *Node) learn(agent string, c Claim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.Epoch > n.revision && c.Epoch > n.claims[agent].Epoch { // else all that came since is known already
		setClaim(n, agent, c)
	}
}

// Owned are the agents that this machine has, as it is known here.
func (n *Node) Owned() (agents []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for agent, c := range n.claims {
		if c.Machine == n.o.Machine {
			agents = append(agents, agent)
		}
	}
	return agents
}

// Claims are all claims, by agent, as they are known here.
func (n *Node) Claims() map[string]Claim {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.claims)
}

// Take makes an agent this machine's unless a machine has it, and is the claim of the machine that has it then.
func (n *Node) Take(ctx context.Context, agent string) (c Claim, err error) {
	for range releasedTries {
		if c, ok := n.Owner(agent); ok {
			return c, nil
		}
		if c, err = n.Claim(ctx, agent, 0); !errors.Is(err, ErrClaimed) {
			return c, err
		}
		if c, err = n.ask(ctx, agent); !errors.Is(err, jetstream.ErrKeyNotFound) {
			return c, err
		}
	}
	return c, fmt.Errorf("claim %s: %w", agent, ErrClaimed)
}

// ask reads the claim on an agent, which may not be known here yet.
func (n *Node) ask(ctx context.Context, agent string) (c Claim, err error) {
	err = n.change(ctx, func(ctx context.Context, b jetstream.KeyValue) error {
		entry, err := Read(ctx, b, key(agent))
		if err == nil {
			var unread error
			c, unread = readClaim(entry.Value(), entry.Revision())
			_ = n.o.Later.Note(unread)
		}
		return err
	})
	if err == nil {
		n.learn(agent, c)
	}
	return c, err
}

// Release gives up a claim. One that another machine has since stays.
func (n *Node) Release(ctx context.Context, agent string, epoch uint64) error {
	err := mayFollow(n, agent, epoch)
	if err == nil {
		err = n.change(ctx, func(ctx context.Context, b jetstream.KeyValue) error {
			return b.Delete(ctx, key(agent), jetstream.LastRevision(epoch))
		})
	}
	if err != nil {
		return fmt.Errorf("release %s: %w", agent, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.claims[agent].Epoch == epoch {
		setClaim(n, agent, Claim{})
	}
	return nil
}

// setClaim takes a claim on an agent, or that there is none: one without a machine. mu is held.
func setClaim(n *Node, agent string, c Claim) {
	if before, ok := n.claims[agent]; ok {
		if n.claimants[before.Machine]--; n.claimants[before.Machine] == 0 {
			delete(n.claimants, before.Machine)
		}
	}
	if c.Machine == "" {
		delete(n.claims, agent)
		return
	}
	n.claims[agent] = c
	n.claimants[c.Machine]++
}

// change does something that the machines have to agree on.
func (n *Node) change(ctx context.Context, do func(context.Context, jetstream.KeyValue) error) error {
	n.mu.Lock()
	bucket := n.bucket
	n.mu.Unlock()
	err := Agree(ctx, bucket, do)
	if errors.Is(err, ErrChanged) {
		return ErrClaimed
	}
	return err
}

// follow keeps what is known here of the claims, from the time on when a majority is there.
func (n *Node) follow(ctx context.Context) {
	reached := n.nc.StatusChanged(nats.CONNECTED)
	defer n.nc.RemoveStatusListener(reached)
	var told string
	for ctx.Err() == nil {
		err := n.followOnce(ctx, reached)
		if ctx.Err() != nil || errors.Is(err, errAnew) {
			continue
		}
		if err.Error() != told { // once for each reason
			told = err.Error()
			n.log.Info("the machines do not agree yet", zap.Error(err))
		}
		_ = ratelimit.Sleep(ctx, retryEvery)
	}
}

// errAnew says that the server of NATS is another one, or the same one again, or reaches the others again: what follows the claims there may not know of this.
var errAnew = errors.New("NATS was reached anew")

func (n *Node) followOnce(ctx context.Context, reached <-chan nats.Status) error {
	asked, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	bucket, err := OpenBucket(asked, n.js, jetstream.KeyValueConfig{
		Bucket: "nexus_" + n.o.Cluster + "_agents", Description: "which machine has which agent", Replicas: n.o.Replicas, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return err
	}
	watch, err := bucket.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	n.mu.Lock()
	n.bucket = bucket
	n.mu.Unlock()
	if err := need(asked, n, bucket); err != nil {
		return err
	}
	known := map[string]Claim{} // before all of them are
	var newest uint64           // revision among them
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reached:
			n.mu.Lock()
			n.behind = true
			n.mu.Unlock()
			return errAnew
		case <-n.reheard:
			return errAnew // rather than wait until what follows the claims finds that some are missing
		case entry, ok := <-watch.Updates():
			switch {
			case !ok:
				return errors.New("the claims come no more")
			case entry == nil:
				n.known(known, newest)
				known = nil
			default:
				newest = max(newest, entry.Revision())
				n.took(entry, known)
			}
		}
	}
}

// need finds the last revision that there is. What the machine that leads the others in the claims says of that is not enough: it may have been cut off itself, and not
// know yet that another one leads. So something is written, which a majority has to agree on: that an agent is given up whose name none can have.
func need(ctx context.Context, n *Node, bucket jetstream.KeyValue) error {
	m := nats.NewMsg("$KV." + bucket.Bucket() + "." + key(" "+n.o.Machine))
	m.Header.Set("KV-Operation", "DEL")
	ack, err := n.js.PublishMsg(ctx, m)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.needed, n.behind = ack.Sequence, false
	return nil
}

// known takes all claims that there were at a revision.
func (n *Node) known(all map[string]Claim, revision uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for agent, c := range n.claims {
		if c.Epoch > revision { // it was told of since
			all[agent] = c
		}
	}
	n.claims, n.revision, n.since = all, revision, time.Now()
	clear(n.claimants)
	for _, c := range all {
		n.claimants[c.Machine]++
	}
	if n.first.IsZero() {
		n.whole, n.first = n.since, n.since
	}
	select {
	case <-n.agreed:
	default:
		close(n.agreed)
		n.log.Info("the machines agree", zap.Int("agents", len(all)))
	}
}

// took takes one claim that was made or given up: into known, before all are.
func (n *Node) took(entry jetstream.KeyValueEntry, known map[string]Claim) {
	name, err := base64.RawURLEncoding.DecodeString(entry.Key())
	if err != nil {
		n.log.Warn("a claim that none makes", zap.String("key", entry.Key()), zap.Error(err))
		return
	}
	c := Claim{Epoch: entry.Revision()}
	if entry.Operation() == jetstream.KeyValuePut {
		c, err = readClaim(entry.Value(), c.Epoch)
		if _, later := errors.AsType[*format.LaterError](n.o.Later.Note(err)); err != nil && !later {
			n.log.Warn("a claim that none makes", zap.String("agent", string(name)), zap.Error(err))
		}
	}
	if known != nil {
		if known[string(name)] = c; c.Machine == "" {
			delete(known, string(name))
		}
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revision = c.Epoch
	if n.claims[string(name)].Epoch > c.Epoch { // of which was told meanwhile
		return
	}
	setClaim(n, string(name), c)
}
