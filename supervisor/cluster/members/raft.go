package members

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster"
)

const (
	// askPatience bounds one question to a server of NATS, or to all.
	askPatience = 2 * time.Second
	// dropPatience bounds the question to the one that leads for a removal, and dropFor all of them.
	dropPatience = 5 * time.Second
	dropFor      = 20 * time.Second
	pause        = 300 * time.Millisecond
	// metaGroup is the group of all servers.
	metaGroup = "_meta_"
	// The accounts whose groups servers have: that of the system, and the one of all other users.
	systemAccount, usersAccount = "$SYS", "$G"
	// Codes of errors of JetStream: JSClusterServerNotMemberErr and JSClusterServerMemberChangeInflightErr.
	notMember, changing = 10044, 10202
)

// group is one of Raft, as a server sees it.
type group struct {
	ID     string `json:"id"`     // of the server
	Leader string `json:"leader"` // its id; "" for none
	Size   int    `json:"size"`
	// Peers are the other servers, by id.
	Peers map[string]struct{} `json:"peers"`
}

// groups are those of a server, by name.
type groups map[string]group

// raftz is an answer to RAFTZ, of which decoding takes what is needed.
type raftz struct {
	Server struct {
		Name string `json:"name"`
	} `json:"server"`
	Data map[string]groups `json:"data"` // by account
}

// natsError is how a server of NATS says that something failed.
type natsError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (f *natsError) Error() string { return "NATS: " + f.Description }

// peerID is how Raft calls the server of a machine: eight characters of a sum of its name (getHash of nats-server).
func peerID(machine string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(machine))
	id := sum[:8]
	for i, b := range id {
		id[i] = digits[int(b)%len(digits)]
	}
	return string(id)
}

// recount asks this machine's server how many machines there are to be. Until it answers, what was known counts.
func (m *Members) recount(ctx context.Context) {
	all, err := m.meta(ctx)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if all.Size == 0 { // it has just begun; or it has no group any more, as it was removed, and none has let it in again
		if m.alone++; m.alone >= aloneLooks {
			m.uncounted = true
		}
		return
	}
	m.alone = 0
	m.count = all.Size
	if all.Leader != "" { // else what was known of this machine holds
		m.uncounted = all.Size == len(all.Peers)
	}
	if m.peers = nil; m.uncounted || all.Size == len(all.Peers)+1 {
		m.peers = all.Peers
	}
}

// meta is the group of all servers as this machine's has it.
func (m *Members) meta(ctx context.Context) (g group, err error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	answer, err := m.o.System.RequestWithContext(ctx, "$SYS.REQ.SERVER."+m.o.System.ConnectedServerId()+".RAFTZ", []byte(`{"group":"`+metaGroup+`"}`))
	if err != nil {
		return g, fmt.Errorf("%w: ask NATS which machines there are: %w", cluster.ErrNoQuorum, err)
	}
	var r raftz
	err = json.Unmarshal(answer.Data, &r)
	return r.Data[systemAccount][metaGroup], err
}

// drop has NATS remove the server of a machine; it is no error if it has none.
func (m *Members) drop(ctx context.Context, machine string) error {
	ask, err := json.Marshal(struct {
		Peer string `json:"peer"`
		ID   string `json:"peer_id"`
	}{machine, peerID(machine)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dropFor)
	defer cancel()
	for {
		done, err := m.dropOnce(ctx, ask)
		if done {
			return nil
		}
		if failed, ok := errors.AsType[*natsError](err); ok && failed.Code != changing {
			return fmt.Errorf("remove the server of %s: %w", machine, err)
		}
		if ratelimit.Sleep(ctx, pause) != nil {
			return fmt.Errorf("remove the server of %s: %w: %w", machine, cluster.ErrNoQuorum, err)
		}
	}
}

func (m *Members) dropOnce(ctx context.Context, ask []byte) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, dropPatience)
	defer cancel()
	answer, err := m.o.System.RequestWithContext(ctx, "$JS.API.SERVER.REMOVE", ask)
	if err != nil {
		return false, err
	}
	var said struct {
		Success bool       `json:"success"`
		Error   *natsError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil {
		return false, err
	}
	if said.Error != nil {
		return said.Error.Code == notMember, said.Error
	}
	return said.Success, nil
}

// askAll asks the servers of machines for their groups, by machine. It returns once all have answered, or after a while.
func (m *Members) askAll(ctx context.Context, machines []string) (all map[string]groups, err error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	inbox := m.o.System.NewRespInbox()
	answers, err := m.o.System.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	for _, account := range []string{systemAccount, usersAccount} {
		if err := m.o.System.PublishRequest("$SYS.REQ.SERVER.PING.RAFTZ", inbox, []byte(`{"account":"`+account+`"}`)); err != nil {
			return nil, err
		}
	}
	all = map[string]groups{}
	for missing := 2 * len(machines); missing > 0; {
		answer, err := answers.NextMsgWithContext(ctx)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
			break // whoever is missing is said
		}
		if err != nil {
			return nil, err
		}
		var r raftz
		if err := json.Unmarshal(answer.Data, &r); err != nil {
			return nil, fmt.Errorf("what NATS says of its groups: %w", err)
		}
		if all[r.Server.Name] == nil {
			all[r.Server.Name] = groups{}
		}
		for _, some := range r.Data {
			maps.Copy(all[r.Server.Name], some)
		}
		if slices.Contains(machines, r.Server.Name) {
			missing--
		}
	}
	return all, nil
}
